"""What a group has committed for one partition."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.types import ZERO_TOPIC_ID, TopicId


class CommittedOffset(NamedTuple):
    """How far a group has read one partition; -1 where nothing is known.

    `topic_id` is of the topic that it was committed for, all zeros where that is not known."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: TopicId = ZERO_TOPIC_ID
