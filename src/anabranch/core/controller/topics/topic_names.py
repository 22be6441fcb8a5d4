"""Which topic names are allowed, with Kafka's sentences.

Source: Kafka's `Topic.validate` and the collision rule: '.' and '_' are the same in metric names.
"""

from __future__ import annotations

import re

from anabranch.core.controller.cluster_state import ClusterState, collision_form
from anabranch.core.errors import ApiError, ClientFault, ErrorCode

LONGEST_NAME = 249
"""A folder name is `topic-partition`, and file systems stop at 255 bytes."""
LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_fault(state: ClusterState, name: str) -> ApiError | None:
    """Why a new topic may not have that name, None when it may."""
    sentence = illegal_name(name) or _collision(state, name)
    if sentence is None:
        return None
    return ClientFault(ErrorCode.INVALID_TOPIC_EXCEPTION, sentence)


def illegal_name(name: str) -> str | None:
    """Why no topic may have that name, whatever exists; None when one may."""
    detail = None
    if not name:
        detail = "the empty string is not allowed"
    elif name in (".", ".."):
        detail = f"'{name}' is not allowed"
    elif len(name) > LONGEST_NAME:
        detail = f"the length of '{name}' is longer than the max allowed length {LONGEST_NAME}"
    elif LEGAL.fullmatch(name) is None:
        detail = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    return None if detail is None else f"Topic name is invalid: {detail}"


def _collision(state: ClusterState, name: str) -> str | None:
    others = state.colliding.get(collision_form(name), set()) - {name}
    if not others or name in state.image.topic_ids_by_name:
        return None
    return f"Topic '{name}' collides with existing topic: {min(others)}"
