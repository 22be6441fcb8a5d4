"""Patterns of transactional ids: as Python's engine where both agree, and never in long time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.patterns.automaton import Pattern
from anabranch.core.patterns.syntax import PatternError

ATOMS = st.sampled_from(
    ["a", "b", "-", ".", "[ab]", "[^a]", "[a-c-]", "\\w", "\\D", "\\.",
     "(?i:A)", "[[:alpha:]]", "\\x61", "()"]
)  # fmt: skip
POSITIONS = st.sampled_from(["^", "$", "\\b", "\\B", "\\A"])
TEXTS = st.text("ab-c.A", min_size=1, max_size=7)
"""In an empty text Python 3.11 finds no `\\B`, as RE2 does."""
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "{0,1}", "{2,}", "*?", "+?"])
PATTERNS = st.recursive(
    st.one_of(POSITIONS, st.tuples(ATOMS, REPEATS).map("".join)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, REPEATS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)


def in_python(pattern):
    """The same pattern in Python's syntax."""
    ours = {"[[:alpha:]]": "[a-zA-Z]", "\\w": "[0-9A-Za-z_]", "\\D": "[^0-9]"}
    for text, theirs in ours.items():
        pattern = pattern.replace(text, theirs)
    return re.sub(r"(?<!\\)\$", r"\\Z", pattern)


@settings(max_examples=400, deadline=None)
@given(pattern=PATTERNS, texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_a_pattern_matches_what_pythons_engine_matches(pattern, texts):
    wanted = re.compile(in_python(pattern), re.ASCII)
    found = Pattern(pattern)
    for text in texts:
        assert found.matches(text) == bool(wanted.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize(
    "pattern",
    ["(", "a)", "[a", "a**", "*a", "a{2,1}", "a{1001}", "\\1", "(?=a)", "(?<!a)", "\\pL", "\\",
     "[b-a]", "(?P<n", "((a{100}){100}){100}", "(((){1000}){1000}){1000}",
     "(" * 200 + ")" * 200],
)  # fmt: skip
def test_what_no_automaton_can_match_or_is_too_large_is_refused(pattern):
    with pytest.raises(PatternError):
        Pattern(pattern).matches("a")


def test_flags_hold_to_the_end_of_their_group():
    assert Pattern("a(?i)b|c").matches("C")
    assert not Pattern("(?:a(?i)b)c").matches("aBC")
    assert Pattern("(?s).").matches("\n")
    assert Pattern("\\Qa.b*\\E+").matches("a.b***")
    assert Pattern("\\Qa.b*\\E").matches("a.b*")
    assert Pattern("(?m)a\n^b$").matches("a\nb")


def test_no_pattern_takes_long():
    """Patterns at which engines that try again despair, and one whose states are never met twice."""
    began = time.process_time()
    assert not Pattern("(a*)*b").matches("a" * 5_000)
    assert not Pattern("(a|a)*c").matches("a" * 5_000)
    hard = Pattern("(a|b)*a(a|b){1000}")
    names = [f"{n:b}".replace("0", "a").replace("1", "b") * 100 for n in range(1_000, 2_000)]
    with pytest.raises(PatternError, match="takes too long"):
        list(map(hard.matches, names))
    assert time.process_time() - began < 10
