"""What a target says of an input: nothing, or the `Broken` rule that the input broke."""

from __future__ import annotations


class Broken(Exception):
    """An input made the code under test break a rule; the message says which."""


class TooSlow(BaseException):
    """An input took more CPU than any may. Not an Exception, so that no handler swallows it."""


def expect(holds: object, rule: str) -> None:
    """Raise Broken with the rule unless it holds."""
    if not holds:
        raise Broken(rule)
