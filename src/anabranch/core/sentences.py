"""How numbers and texts of clients are told in sentences: "1 partition", "3 partitions".

Not here: the sentences, each of which stands beside the decision that it tells.
"""

from __future__ import annotations

import re
from collections.abc import Collection

LONGEST_TEXT = 200
"""Characters of a name that a client has chosen: it may have 32,767, and in a login more."""


def shortened(text: str, most: int = LONGEST_TEXT) -> str:
    """A text that a line of the log can hold."""
    return text if len(text) <= most else f"{text[:most]}…"


def number_of(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun; `plural` where that is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


BOTH_NUMBERS = re.compile(r"(?<!\d)(\d+) ([a-z ]+)\(s\)( are\b| were\b)?")
"""How sentences of Kafka's, which its tools look for, name what may be one or many."""
OF_ONE = {"": "", " are": " is", " were": " was"}


def in_number(text: str) -> str:
    """A sentence of Kafka's for people: "1 broker is", "2 brokers are"."""

    def told(found: re.Match[str]) -> str:
        count, noun, verb = found[1], found[2], found[3] or ""
        return f"{count} {noun}{OF_ONE[verb]}" if count == "1" else f"{count} {noun}s{verb}"

    return BOTH_NUMBERS.sub(told, text)


def named(ids: Collection[object], noun: str) -> str:
    """Things by their ids, in their order: "broker 3", "brokers 3, 4"."""
    return f"{noun if len(ids) == 1 else noun + 's'} {', '.join(map(str, ids))}"
