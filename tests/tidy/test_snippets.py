"""What pages show of a file in sections is the whole file, so that a reader has all that it needs."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOWN = re.compile(r'^ *--8<-- "([^":]+):([^"]+)"$', re.MULTILINE)
MARKER = re.compile(r"^.*--8<-- \[(start|end):(\w+)\]\n", re.MULTILINE)


def section(text: str, name: str) -> str:
    """The lines of a file between the two markers of a section."""
    begun = text.split(f"--8<-- [start:{name}]\n")[1]
    return begun.split(f"# --8<-- [end:{name}]")[0]


def test_the_sections_that_pages_show_are_the_whole_file():
    sections: dict[str, list[str]] = defaultdict(list)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for path, name in SHOWN.findall(page.read_text()):
            sections[path].append(name)
    assert sections
    for path, names in sections.items():
        text = (ROOT / path).read_text()
        shown = "\n".join(section(text, name) for name in names)
        assert shown.split() == MARKER.sub("", text).split(), path
