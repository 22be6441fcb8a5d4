"""What became of elections that were asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.client.elections import Elected


def election_view(each: Elected, why: dict[str, list[str]]) -> dict[str, Any]:
    """One partition; `why` are the sentences about each that failed, such as "flights-3"."""
    return {
        "topic": each.topic,
        "partition": each.partition,
        "elected": not each.code,
        "error": each.code.name if each.is_failure else None,
        "message": each.sentence if each.is_failure else None,
        "reasons": why.get(f"{each.topic}-{each.partition}", []) if each.is_failure else [],
    }
