"""The house itself: verbs, decisions, navigation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERBS = (
    "demo",
    "up",
    "test",
    "check",
    "fuzz",
    "sim",
    "mutants",
    "pages",
    "chaos",
    "upgrade",
    "bench",
    "compat",
    "docs",
    "clean",
)
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
REFERENCE = (ROOT / "scripts" / "reference.py").read_text()
HALF_A_PAGE_WORDS = 320
GIVEN_OUT = {70, 71, 72, 73, 90, 91, 92, 93, 98}
"""Numbers of decisions whose records are still being written."""


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_one_script(verb):
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{verb}: ## .+\n\t@scripts/{verb}$", makefile, re.MULTILINE)
    script = ROOT / "scripts" / verb
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert "set -euo pipefail" in text
    assert verb == "clean" or "scripts/venv" in text, "a verb works on a fresh clone by itself"


def test_clean_keeps_every_page(tmp_path):
    """Generated ones, too: they lie in the repository."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for folder in ("docs/reference", "src", "tests", "bench", "compat", "fuzz", "chaos"):
        (tmp_path / folder).mkdir(parents=True)
    written = set(re.findall(r'"([a-z-]+\.md)": \w+_page', REFERENCE))
    assert written
    for name in written:
        (tmp_path / "docs" / "reference" / name).touch()
    subprocess.run([tmp_path / "scripts" / "clean"], check=True, timeout=60)
    assert {path.name for path in (tmp_path / "docs" / "reference").iterdir()} == written


def test_no_public_text_names_a_source_that_a_reader_cannot_look_up():
    """A KIP, a decision or a page, not a document that is not part of the project."""
    names = re.compile(r"\bdocuments?\s+(?:rows?\b|0\d\d\b)|\brows?\s+[A-Z]\d+\b")
    places = ("src", "docs", "scripts", "bench", "chaos", "compat", "fuzz", "packaging")
    texts = [path for place in places for path in (ROOT / place).rglob("*")]
    texts += ROOT.glob("*.md")
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in texts
        if path.suffix in (".py", ".md", ".yml", "") and path.is_file()
        for match in names.finditer(path.read_text(errors="replace"))
    ]
    assert not found


def test_ci_runs_check_and_test():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make check test" in script.read_text()


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_half_a_page_and_whole(path):
    text = path.read_text()
    assert text.startswith(f"# {int(path.name[:4])}. ")
    for part in ("Context", "Choice", "Rejected", "Consequence"):
        assert f"**{part}.**" in text
    assert len(text.split()) <= HALF_A_PAGE_WORDS


def test_decisions_are_numbered_without_gaps_and_listed():
    numbers = [int(path.name[:4]) for path in DECISIONS]
    assert len(numbers) == len(set(numbers))
    assert set(range(1, max(numbers) + 1)) - set(numbers) <= GIVEN_OUT
    index = (ROOT / "docs" / "decisions" / "index.md").read_text()
    assert all(f"]({path.name})" in index for path in DECISIONS)


def test_every_page_can_be_found():
    listed = (ROOT / "mkdocs.yml").read_text()
    pages = [
        path.relative_to(ROOT / "docs")
        for room in ("concepts", "operate", "pipelines")
        for path in (ROOT / "docs" / room).glob("*.md")
    ]
    assert pages
    assert all(f": {page}" in listed for page in pages)


TRUTH_ELSEWHERE = {
    "core/settings/setting.py",  # says how settings are read
    "pipelines/options.py",  # Spark's options
    "pipelines/producer_options.py",
    "sim/rehearsal/fields.py",  # a rehearsal's own file
}


def test_the_text_of_a_boolean_setting_is_read_in_one_place():
    """`TRUE` and ` true` are accepted and mean true: `== "true"` is another reading."""
    package = ROOT / "src" / "anabranch"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r'(==|!=|\bin) \(?"(true|false)"', path.read_text())
    }
    assert found <= TRUTH_ELSEWHERE


def test_the_page_names_each_package_and_module_of_core() -> None:
    page = (ROOT / "docs" / "concepts" / "architecture.md").read_text()
    table = page.split("## Contents of core", 1)[1].split("\n## ", 1)[0]
    cells = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`(\w+)(?:/|\.py)`", cells))
    core = ROOT / "src" / "anabranch" / "core"
    packages = {each.parent.name for each in core.glob("*/__init__.py")}
    assert packages - named == set(), "describe them on the architecture page"
    present = packages | {each.stem for each in core.glob("*.py")}
    assert named - present == set(), "they are not there any more"
