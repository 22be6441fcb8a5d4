"""The pictures of the documentation are those of their sources, and are reachable from a page."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
DRAWING = runpy.run_path(str(ROOT / "scripts" / "pictures.py"))


def test_each_drawing_is_that_of_its_source():
    assert DRAWING["stale"]() == [], "draw them anew: scripts/pictures.py"


def test_each_plot_is_that_of_the_tables(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    sys.modules.pop("plots", None)
    import plots

    page = ROOT / "docs" / "operate" / "performance.md"
    assert [path.name for path in plots.stale(page)] == [], "scripts/bench --page draws them anew"
    counts = {plot.file: len(plots.chosen(page.read_text(), plot)) for plot in plots.PLOTS}
    assert counts == {plot.file: len(plot.lines) for plot in plots.PLOTS}, "a row was renamed"


def test_each_picture_is_shown_on_a_page():
    pages = "".join(each.read_text() for each in (ROOT / "docs").rglob("*.md"))
    assert [each.name for each in PICTURES.iterdir() if each.suffix != ".txt"
            and f"pictures/{each.name}" not in pages] == []  # fmt: skip


def test_nothing_in_a_drawing_is_loaded_from_elsewhere():
    for each in PICTURES.glob("*.svg"):
        text = each.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not [word for word in ("http", "url(h", "@import", "<image") if word in text], each


@pytest.mark.parametrize("line", ["box a 1 2", "circle 1 2 3", "arrow a b", "mark x 1 2 t"])
def test_a_line_that_cannot_be_read_is_named(line):
    with pytest.raises(ValueError, match="line 2: "):
        DRAWING["draw"](f"size 10 10\n{line}\n")
