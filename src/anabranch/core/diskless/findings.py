"""What `verify` and `restore` of `anabranch diskless` and `anabranch remote` may find, and whether
it is damage."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from anabranch.core.diskless.rows import LogKey
from anabranch.core.types import TopicId, topic_id_text


class Kind(Enum):
    """Kinds of findings."""

    MANIFEST_MISSING = "manifest missing"
    MANIFEST_DAMAGED = "manifest damaged"
    CHECKPOINT_DAMAGED = "checkpoint damaged"
    """An earlier one, or all manifests, are there in its place."""
    MANIFEST_DIFFERS = "manifest differs"
    """What a manifest says and what the coordinator says do not agree."""
    COORDINATOR_EMPTY = "coordinator empty"
    OBJECT_MISSING = "object missing"
    OBJECT_DAMAGED = "object damaged"
    ROW_OUTSIDE = "row outside"
    """A row points to bytes that are no batches of its partition."""
    OFFSETS_MISSING = "offsets missing"
    OFFSETS_TWICE = "offsets twice"
    OBJECT_UNKNOWN = "object unknown"
    OBJECT_UNUSED = "object unused"
    """Prepared, refused, or without records that are still kept: brokers collect it."""
    NOT_NOTED = "not in a manifest"
    START_RAISED = "start raised"
    OFFSETS_GUESSED = "offsets guessed"
    SEGMENT_MISSING = "segment missing"
    """Of a remote segment, an object or more are not in the store."""
    SEGMENT_CHANGED = "segment changed"
    """An object is not what was written: it has another size, or other bytes."""
    DESCRIPTION_DAMAGED = "description damaged"
    """Records can be read, but a restore would not find the segment."""
    SEGMENT_UNKNOWN = "segment unknown"
    """The coordinator has no fact of it."""
    SEGMENT_UNFINISHED = "segment unfinished"
    """Its copy or its removal is not over: brokers go on with it."""
    RECORDS_LEFT_OUT = "records left out"
    """They are in no manifest, and appended they would come behind later ones of their producer."""

    @property
    def is_damage(self) -> bool:
        """Whether records are lost or may be; the others are what a crash leaves behind."""
        return self not in _HARMLESS


_HARMLESS = frozenset(
    {
        Kind.CHECKPOINT_DAMAGED,
        Kind.OBJECT_UNKNOWN,
        Kind.OBJECT_UNUSED,
        Kind.NOT_NOTED,
        Kind.START_RAISED,
        Kind.OFFSETS_GUESSED,
        Kind.SEGMENT_UNKNOWN,
        Kind.SEGMENT_UNFINISHED,
    }
)


class Finding(NamedTuple):
    """One thing that a person should know."""

    kind: Kind
    place: str
    detail: str


def place_of(key: LogKey, names: Mapping[TopicId, str]) -> str:
    """A partition for people: its topic's name, or else its id."""
    return f"{names.get(key.topic_id) or topic_id_text(key.topic_id)}-{key.partition}"
