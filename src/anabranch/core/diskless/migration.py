"""The phase of a classic topic that becomes diskless, as the metadata keeps it.

What: the value of a topic's `diskless.migration.phase`, which the controller writes: `preparing:N`
while leaders copy what is closed and take no new transactions, `sealing:N` while they take no
records, until all of them have sealed their logs; then it goes, and `diskless.enable` is true. N
is the number of the migration, greater than that of any before. Rule kept: a text that is none of
these counts as no migration. Not here: when a phase begins (`core/controller`), what leaders do
(`core/tiering/seal_rounds.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.image import RESOURCE_TOPIC

if TYPE_CHECKING:
    from anabranch.core.log.producers import ProducerStates
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.wire.batch import BatchHeader

PHASE = "diskless.migration.phase"


class Step(Enum):
    """What leaders do."""

    PREPARING = "preparing"
    SEALING = "sealing"


class Phase(NamedTuple):
    """Where a migration stands."""

    step: Step
    migration: int

    def __str__(self) -> str:
        """As the metadata has it."""
        return f"{self.step.value}:{self.migration}"


def phase_of(text: str) -> Phase | None:
    """What a topic's setting says; None: no migration."""
    step, _, number = text.partition(":")
    if step not in (each.value for each in Step) or not number.isdecimal():
        return None
    return Phase(Step(step), int(number))


def phase_in(own: Mapping[str, str]) -> Phase | None:
    """The phase among a topic's own settings."""
    return phase_of(own.get(PHASE, ""))


def migrating(image: MetadataImage) -> Iterator[tuple[str, Phase]]:
    """Topics that become diskless."""
    for (kind, name), own in image.configs.items():
        phase = phase_in(own) if kind == RESOURCE_TOPIC else None
        if phase is not None:
            yield name, phase


def check_open(phase: Phase, header: BatchHeader, producers: ProducerStates) -> None:
    """Refuse a client's batch that must wait for the end of a phase: new transactions, and when
    the log is being sealed, all but what open ones still write. What was appended before is
    answered again. Raises NOT_LEADER_OR_FOLLOWER, with which clients look again and try again."""
    if header.producer_id >= 0:
        if producers.is_open(header.producer_id, header.producer_epoch):
            return
        if producers.duplicate_of(header) is not None:
            return
    if phase.step is Step.SEALING or header.is_transactional:
        raise _wait(
            "The topic is becoming diskless: no record is taken for a moment."
            if phase.step is Step.SEALING
            else "The topic is becoming diskless: it takes no new transactions."
        )


def check_marker(phase: Phase, header: BatchHeader, producers: ProducerStates) -> None:
    """Refuse the marker of a transaction that has nothing here while the log is being sealed: it
    may be sealed, and would go on in an offset that is given to another record. Raises
    NOT_LEADER_OR_FOLLOWER."""
    if phase.step is Step.SEALING and not producers.has_open(header.producer_id):
        raise _wait("The topic is becoming diskless: it takes no marker of what is not open.")


def check_shortening(phase: Phase | None) -> None:
    """Refuse DeleteRecords while the log is being sealed: its start may be sealed, and records
    would come back. Raises NOT_LEADER_OR_FOLLOWER."""
    if phase is not None and phase.step is Step.SEALING:
        raise _wait("The topic is becoming diskless: no record is deleted for a moment.")


def _wait(why: str) -> ApiError:
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
