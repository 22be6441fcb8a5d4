"""Text in angle brackets stands in code: elsewhere a browser takes it for a tag, and hides it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"^ *```.*?^ *```|`[^`]*`|<!--.*?-->", re.MULTILINE | re.DOTALL)
TAG = re.compile(r"</?[A-Za-z][^>\n]*>")
MEANT = re.compile(r"</?(?:div|a)\b")


def hidden(text: str) -> list[str]:
    """What looks like a tag outside of code."""
    return [tag for tag in TAG.findall(CODE.sub("", text)) if not MEANT.match(tag)]


def test_no_page_hides_text_in_angle_brackets():
    assert {page.name: tags for page in PAGES if (tags := hidden(page.read_text()))} == {}


def test_only_code_may_have_them():
    assert hidden("| `a<b: c>` | array<struct<key: string>> |") == ["<struct<key: string>"]
