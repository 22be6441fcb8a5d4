"""What a controller decided, before anything has happened (KRaft calls it ControllerResult)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from anabranch.core.wire.metadata_records import MetadataRecord

ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why this, why not that: a machine-readable code and a sentence for people.

    Made only from state, by core; command line, console, metrics and simulator print it.
    """

    code: str
    sentence: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def told(self) -> tuple[str, str, str]:
        """Code, partition and sentence."""
        return self.code, str(self.details.get("partition", "")), self.sentence


@dataclass(frozen=True, slots=True)
class Result(Generic[ResponseT]):
    """Records that would change the state, the response once they are durable, and the reasons.

    `atomic` says that the records must be committed as one batch or not at all; `more_follow` that
    nobody waits for them, and that the next ones come in a moment and may share their append.
    Where nothing is written, the store first confirms the lease, unless it `is_routine`: an answer
    that promises nothing, and comes too often to ask the store each time.
    """

    records: tuple[MetadataRecord, ...]
    response: ResponseT
    reasons: tuple[Reason, ...] = ()
    atomic: bool = True
    more_follow: bool = False
    is_routine: bool = False
