"""Topic names as handlers judge them: which are legal, which are Kafka's own.

Source: Kafka's `Topic` class. Not here: creating topics (the controller judges again)."""

from __future__ import annotations

import re

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Written by coordinators only."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_internal(topic: str | None) -> bool:
    """Whether clients may read but not write the topic."""
    return topic in INTERNAL_TOPICS


def is_legal(topic: str) -> bool:
    """Whether a topic could have that name."""
    return topic not in (".", "..") and _LEGAL.fullmatch(topic) is not None
