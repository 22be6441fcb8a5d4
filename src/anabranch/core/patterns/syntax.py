"""Reads a regular expression in RE2's syntax into a tree.

What: `parse` gives nodes for characters, sequences, choices, repetitions and positions. Rule kept:
what RE2 refuses is refused, above all what no automaton can match (references back, looking ahead);
Unicode classes (`\\p{L}`), which RE2 has, are refused too. Source: RE2's syntax, by which Kafka
reads patterns of transactional ids (KIP-1152). Not here: matching (`automaton`).
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

MOST_REPEATS = 1_000
"""As in RE2."""
MOST_DEPTH = 100
"""Of groups within groups, as this reader and its users call themselves for each."""
LAST = 0x10FFFF

Ranges: TypeAlias = tuple[tuple[int, int], ...]


class PatternError(Exception):
    """A pattern that cannot be read; the sentence says why."""


class Chars(NamedTuple):
    """One character of these ranges."""

    ranges: Ranges


class Sequence(NamedTuple):
    """All of these, one after another; without parts, nothing."""

    parts: tuple[Node, ...]


class Choice(NamedTuple):
    """One of these."""

    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    """So many times; `most` is None for any number."""

    part: Node
    least: int
    most: int | None


class Position(NamedTuple):
    """No character, but a place: `^ $` of a line, `\\A \\z \\b \\B`."""

    kind: str


Node: TypeAlias = Chars | Sequence | Choice | Repeat | Position

DIGITS: Ranges = ((48, 57),)
WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE}
NAMED: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)), "alpha": ((65, 90), (97, 122)), "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)), "cntrl": ((0, 31), (127, 127)), "digit": DIGITS,
    "graph": ((33, 126),), "lower": ((97, 122),), "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)), "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),), "word": WORD, "xdigit": ((48, 57), (65, 70), (97, 102)),
}  # fmt: skip
CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
POSITIONS = frozenset("AzbB")
COUNTED = re.compile(r"\{(\d{1,6})(,(\d{0,6}))?\}")
GROUP = re.compile(r"\?(?:P?<(\w+)>|([imsU]*(?:-[imsU]+)?)([:)]))")


def inverted(ranges: Ranges) -> Ranges:
    """All other characters."""
    found, first = [], 0
    for low, high in sorted(ranges):
        if low > first:
            found.append((first, low - 1))
        first = max(first, high + 1)
    return (*found, (first, LAST)) if first <= LAST else tuple(found)


def folded(ranges: Ranges) -> Ranges:
    """These characters in both cases, as far as ASCII goes."""
    more = [
        (max(low, first) + shift, min(high, last) + shift)
        for low, high in ranges
        for first, last, shift in ((65, 90, 32), (97, 122, -32))
        if max(low, first) <= min(high, last)
    ]
    return (*ranges, *more)


class Reader:
    """One pattern, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._flags: frozenset[str] = frozenset()

    def read(self) -> Node:
        """The whole pattern."""
        node = self._choice()
        if self._at < len(self._text):
            raise PatternError("unexpected )")
        return node

    def _next(self, text: str) -> bool:
        """Whether this comes next; then it is passed."""
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _choice(self) -> Node:
        before, parts = self._flags, [self._sequence()]
        while self._next("|"):
            parts.append(self._sequence())
        self._flags = before
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._next("\\Q"):
                quoted, _, _ = self._text[self._at :].partition("\\E")
                self._at += len(quoted)
                self._next("\\E")
                ones: list[Node] = [self._chars(((ord(each), ord(each)),)) for each in quoted]
                parts += [*ones[:-1], *map(self._repeated, ones[-1:])]
            else:
                parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        least, most = bounds
        if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
            raise PatternError("invalid repeat count")
        self._next("?")  # which of several matches is found makes no difference here
        if self._bounds() is not None:
            raise PatternError("invalid nested repetition operator")
        return Repeat(part, least, most)

    def _bounds(self) -> tuple[int, int | None] | None:
        for text, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._next(text):
                return bounds
        found = COUNTED.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        least = int(found[1])
        return least, (int(found[3]) if found[3] else None) if found[2] else least

    def _atom(self) -> Node:
        one = self._take()
        if one == "(":
            return self._group()
        if one == "[":
            return self._chars(self._class())
        if one == ".":
            return Chars(((0, LAST),) if "s" in self._flags else inverted(((10, 10),)))
        if one in "^$":
            is_of_line = "m" in self._flags
            return Position(one if is_of_line else {"^": "A", "$": "z"}[one])
        if one in "*+?":
            raise PatternError(f"missing argument to repetition operator: {one}")
        if one == "\\":
            if self._at < len(self._text) and self._text[self._at] in POSITIONS:
                return Position(self._take())
            return self._chars(self._escaped())
        return self._chars(((ord(one), ord(one)),))

    def _chars(self, ranges: Ranges) -> Chars:
        return Chars(folded(ranges) if "i" in self._flags else ranges)

    def _group(self) -> Node:
        before = self._flags
        if self._text.startswith("?", self._at):
            found = GROUP.match(self._text, self._at)
            if found is None:
                raise PatternError("invalid or unsupported Perl syntax")
            self._at = found.end()
            added, _, removed = (found[2] or "").partition("-")
            self._flags = (before | set(added)) - set(removed)
            if found[3] == ")":
                return Sequence(())  # these flags hold until the group around ends
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise PatternError("too many groups within groups")
        node = self._choice()
        if not self._next(")"):
            raise PatternError("missing closing )")
        self._depth, self._flags = self._depth - 1, before
        return node

    # Characters.

    def _escaped(self) -> Ranges:
        one = self._take()
        if one.lower() in CLASSES:
            ranges = CLASSES[one.lower()]
            return ranges if one.islower() else inverted(ranges)
        if one == "x":
            return self._hexadecimal()
        if one in CONTROLS:
            return ((CONTROLS[one], CONTROLS[one]),)
        if one.isascii() and one.isalnum():
            raise PatternError(f"invalid escape sequence: \\{one}")
        return ((ord(one), ord(one)),)

    def _hexadecimal(self) -> Ranges:
        found = re.compile(r"\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2})").match(self._text, self._at)
        if found is None or (code := int(found[1] or found[2], 16)) > LAST:
            raise PatternError("invalid escape sequence: \\x")
        self._at = found.end()
        return ((code, code),)

    def _class(self) -> Ranges:
        is_negated, ranges, is_first = self._next("^"), list[tuple[int, int]](), True
        while is_first or not self._next("]"):
            is_first = False
            ranges += self._member()
        found = tuple(ranges)
        if "i" in self._flags:
            found = folded(found)
        return inverted(found) if is_negated else found

    def _member(self) -> Ranges:
        named = re.compile(r"\[:(\^?)(\w+):\]").match(self._text, self._at)
        if named is not None:
            self._at = named.end()
            if named[2] not in NAMED:
                raise PatternError(f"invalid character class range: {named[0]}")
            return inverted(NAMED[named[2]]) if named[1] else NAMED[named[2]]
        low = self._one()
        is_range = self._text.startswith("-", self._at) and self._text[self._at + 1 :][:1] != "]"
        if len(low) != 1 or low[0][0] != low[0][1] or not is_range:
            return low
        self._at += 1
        high = self._one()
        if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
            raise PatternError("invalid character class range")
        return ((low[0][0], high[0][0]),)

    def _one(self) -> Ranges:
        one = self._take()
        return self._escaped() if one == "\\" else ((ord(one), ord(one)),)


def parse(text: str) -> Node:
    """The tree of a pattern. Raises PatternError."""
    return Reader(text).read()
