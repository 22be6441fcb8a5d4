"""Tokens of HTTP: which files can be used, and which headers are let in."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as some

from anabranch.core.access.http_tokens import MOST_TOKENS, TokensFault, is_let_in, tokens_of

TOKENS = some.text(string.ascii_letters + string.digits + "-._~+/", min_size=16, max_size=40)


@given(tokens=some.lists(TOKENS, min_size=1, max_size=5), other=some.text(max_size=40))
def test_each_token_of_the_file_is_let_in_and_no_other(tokens, other):
    found = tokens_of("# who\n\n" + "\r\n".join(f"  {each} " for each in tokens))
    for each in tokens:
        assert is_let_in(f"Bearer {each}", found) and is_let_in(f"bEARER  {each} ", found)
        assert not is_let_in(each, found) and not is_let_in(f"Basic {each}", found)
        assert not is_let_in(f"Bearer {each[:-1]}", found) or each[:-1] in tokens
    assert is_let_in(f"Bearer {other}", found) == (other.strip() in tokens)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer \udc80", "Bearer a b"])
def test_what_is_no_token_is_not_let_in(header):
    assert not is_let_in(header, tokens_of("0123456789abcdef"))


@pytest.mark.parametrize(
    "text", ["", "# none\n", "short", "with blanks in it 0123456789", "ü" * 20, "0123456789abcdef\n" * (MOST_TOKENS + 1)]
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_told_without_its_words(text):
    with pytest.raises(TokensFault) as fault:
        tokens_of(text)
    assert not text.strip() or text.strip() not in str(fault.value)


def test_the_line_that_is_wrong_is_named():
    with pytest.raises(TokensFault, match="line 3 is no token"):
        tokens_of("0123456789abcdef\n# x\nsecret")
