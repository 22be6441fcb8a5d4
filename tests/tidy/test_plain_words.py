"""Words that make a sentence vaguer than it is: their number never grows."""

from __future__ import annotations

import re

from tests.tidy.conftest import ROOT

REFERENCE = ROOT / "docs" / "reference"

MOST = {"nobody": 300, "whoever": 114, "anew": 88, "made-up": 0}
"""Lower a number when you have replaced some. "Nobody leads" is "the partition has no leader",
"whoever reads" is "a reader", "read anew" is "read again", "made-up" is "simulated"."""


def texts(files):
    for path in files:
        if path.parent == REFERENCE:  # most of it repeats what the sources say
            continue
        if path.suffix in (".py", ".md") and path.is_relative_to(ROOT):
            if path.relative_to(ROOT).parts[0] in ("src", "docs") or path.parent == ROOT:
                yield path.read_text(encoding="utf-8")


def test_vague_words_do_not_become_more(tracked_files):
    seen = dict.fromkeys(MOST, 0)
    for text in texts(tracked_files):
        for word in re.findall(r"(?i)\b(?:nobody|whoever|anew|made-up)\b", text):
            seen[word.lower()] += 1
    more = {word: count for word, count in seen.items() if count > MOST[word]}
    assert not more, f"replace them, or take as many away elsewhere: {more}; at most {MOST}"
