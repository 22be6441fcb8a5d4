"""What pages show of files is what the files contain, whole, so that a reader has all of it."""

from __future__ import annotations

import re
import runpy
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SNIPPETS = runpy.run_path(str(ROOT / "scripts" / "snippets.py"))
FEWEST = 25


def blocks():
    """Path and section of each block that shows a file."""
    for page in SNIPPETS["pages"]():
        for found in SNIPPETS["SHOWS"].finditer(page.read_text()):
            yield found["path"], found["section"]


def test_each_block_is_what_its_file_contains():
    assert SNIPPETS["stale"]() == [], "write them again: scripts/snippets.py"
    assert len(list(blocks())) >= FEWEST


def test_each_comment_that_names_a_file_stands_before_a_block():
    named = sum(page.read_text().count("<!-- shows ") for page in SNIPPETS["pages"]())
    assert named == len(list(blocks()))
    assert not [
        str(page) for page in SNIPPETS["pages"]() if re.search(r"^ *--8<--", page.read_text(), re.M)
    ]


def test_a_changed_block_is_noticed():
    page = "<!-- shows LICENSE -->\n```text\nold\n```"
    assert "Apache License" in SNIPPETS["renewed"](page)
    indented = SNIPPETS["renewed"]("    <!-- shows LICENSE -->\n    ```text\n    ```")
    assert all(line.startswith("    ") for line in indented.splitlines() if line)


def test_the_sections_that_pages_show_are_the_whole_file():
    sections: dict[str, list[str]] = defaultdict(list)
    for path, section in blocks():
        if section is not None:
            sections[path].append(section)
    assert sections
    for path, names in sections.items():
        whole = SNIPPETS["MARKER"].sub("", (ROOT / path).read_text())
        assert "\n".join(SNIPPETS["shown"](path, name) for name in names).split() == whole.split()
