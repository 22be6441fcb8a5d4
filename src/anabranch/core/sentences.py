"""How numbers and texts of clients are told in sentences: "1 partition", "3 partitions".

Not here: the sentences, each of which stands beside the decision that it tells.
"""

from __future__ import annotations

from collections.abc import Collection

LONGEST_TEXT = 200
"""Characters of a name that a client has chosen: it may have 32,767, and in a login more."""


def shortened(text: str, most: int = LONGEST_TEXT) -> str:
    """A text that a line of the log can hold."""
    return text if len(text) <= most else f"{text[:most]}…"


def number_of(count: int, noun: str, plural: str = "") -> str:
    """A number with its noun; `plural` where that is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def named(ids: Collection[object], noun: str) -> str:
    """Things by their ids, in their order: "broker 3", "brokers 3, 4"."""
    return f"{noun if len(ids) == 1 else noun + 's'} {', '.join(map(str, ids))}"
