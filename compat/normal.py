"""Takes out of a text what may differ between two correct servers.

Addresses, folders, ids that a server draws, and times become words in angle brackets. Everything
else stays, so that a difference that nobody thought of is seen. It does not reorder lines: a row
whose tool prints in no fixed order sorts by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

PATTERNS = (
    (re.compile(r"(?<![\w-])(?=[\w-]*[A-Z])(?=[\w-]*[a-z])[\w-]{22}(?![\w-])"), "<id>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b1[5-9]\d{11}\b"), "<ms>"),
    (
        re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,:]\d{3})?(?:Z|[+-]\d\d:?\d\d)?"),
        "<time>",
    ),
)
"""Topic and cluster ids, member ids' tails, milliseconds since 1970, written times."""


def plain(text: str, names: Mapping[str, str]) -> str:
    """The text with `names` (what to find -> what to write) and every pattern replaced.

    A name is not found inside a longer number, and a number not inside a word: a port is no part
    of a time or an id.
    """
    for find in sorted(names, key=len, reverse=True):
        edge = r"\w" if find.isdigit() else r"\d"
        text = re.sub(rf"(?<!{edge}){re.escape(find)}(?!{edge})", names[find], text)
    for pattern, word in PATTERNS:
        text = pattern.sub(word, text)
    return text


def lines(text: str) -> list[str]:
    """Lines with something on them, inner runs of blanks made one."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def columns(text: str, wanted: Iterable[str]) -> list[list[str]]:
    """The wanted columns of a table whose headings are one word each, rows sorted.

    A tool may print several tables; lines before the first heading are left out.
    """
    names = list(wanted)
    found: list[list[str]] = []
    at: list[int] = []
    for line in lines(text):
        words = line.split(" ")
        if set(names) <= set(words):
            at = [words.index(name) for name in names]
        elif at and len(words) > max(at):
            found.append([words[place] for place in at])
    return sorted(found)
