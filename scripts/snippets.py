#!/usr/bin/env python3
"""Writes files of the repository into the pages that show them: `scripts/snippets.py`.

A page names a file, or a section of one, in a comment before a block of code:
`<!-- shows docs/start/clients/hello.py -->`, `<!-- shows PATH:SECTION -->`. What the block contains
is that file, so that the page can be read where it lies; `tests/tidy/test_snippets.py` fails when
it is not. A section lies between `--8<-- [start:NAME]` and `--8<-- [end:NAME]` in comments.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHOWS = re.compile(
    r"^(?P<indent> *)<!-- shows (?P<path>[^ :]+)(?::(?P<section>\w+))? -->\n"
    r"(?P<fence> *```.*\n)(?P<body>(?:(?! *```).*\n)*?)(?P<end> *```)$",
    re.MULTILINE,
)
MARKER = re.compile(r"^.*--8<-- \[(?:start|end):\w+\]\n", re.MULTILINE)


def pages() -> list[Path]:
    """Every page that may show a file."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown(path: str, section: str | None) -> str:
    """The text of a file, or of a section of it."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if section is not None:
        text = text.split(f"--8<-- [start:{section}]\n")[1]
        text = text.split(f"--8<-- [end:{section}]")[0].rpartition("\n")[0] + "\n"
    return MARKER.sub("", text).strip("\n") + "\n"


def renewed(page: str) -> str:
    """The page with what its files contain now."""

    def block(found: re.Match[str]) -> str:
        indent = found["indent"]
        text = shown(found["path"], found["section"])
        lines = [indent + line if line else "" for line in text.splitlines()]
        section = f":{found['section']}" if found["section"] else ""
        comment = f"{indent}<!-- shows {found['path']}{section} -->"
        return "\n".join([comment, found["fence"].rstrip("\n"), *lines, found["end"]])

    return SHOWS.sub(block, page)


def stale() -> list[str]:
    """Pages whose blocks are not what their files contain."""
    return [
        str(page.relative_to(ROOT))
        for page in pages()
        if renewed(page.read_text(encoding="utf-8")) != page.read_text(encoding="utf-8")
    ]


if __name__ == "__main__":
    for each in pages():
        text = each.read_text(encoding="utf-8")
        if (new := renewed(text)) != text:
            each.write_text(new, encoding="utf-8")
            print(f"wrote {each.relative_to(ROOT)}")
