"""What the controller said lately, and how it outlives the controller.

What: the newest reasons of committed decisions, at most `MOST`. Why in the metadata log: whoever
asks why a replica is missing often asks after the controller that saw it is gone too, so the first
record of a batch carries the reasons of its decision in a tagged field, a snapshot's first record
those that are kept, and the next controller reads them with the rest. Rules kept: a reason is told
when what it explains is committed; at most `MOST_A_DECISION` sentences of one decision are kept,
the broker's own before those of its partitions. Source: KIP-482 (see core/wire/own_fields.py).
Not here: how reasons are made (`reasons`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from anabranch.core.controller.result import Reason
from anabranch.core.wire.metadata_records import MetadataRecord
from anabranch.core.wire.own_fields import OWN_TAG, SaidReason, SaidReasons, tagged, untagged

MOST = 1000
"""Reasons that are kept: some 100 KB in an answer and in a snapshot."""
MOST_A_DECISION = 20
"""A broker's death may change thousands of partitions; its own reason speaks for the rest."""


class History:
    """The newest reasons, oldest first; one for each term."""

    def __init__(self) -> None:
        self._said: deque[SaidReason] = deque(maxlen=MOST)
        self._planned: dict[int, Sequence[SaidReason]] = {}

    def plan(
        self, records: Sequence[MetadataRecord], reasons: Iterable[Reason], now_ms: int, offset: int
    ) -> Sequence[MetadataRecord]:
        """The records of a decision at `offset`, carrying why; told once they are committed.

        `now_ms` is of the wall clock.
        """
        said = [_said(each, now_ms, offset) for each, _ in zip(reasons, range(MOST_A_DECISION))]
        if not said or not records:
            return records
        self._planned[offset] = said
        return list(carrying(records, said))

    def commit(self, offset: int) -> None:
        """The batch that begins there is committed."""
        self._said.extend(self._planned.pop(offset, ()))

    def read(self, records: Sequence[MetadataRecord]) -> None:
        """A committed batch of the log or of a snapshot."""
        if records and OWN_TAG in (records[0].unknown_tagged_fields or {}):
            self._said.extend(untagged(SaidReasons, records[0].unknown_tagged_fields).reasons)

    def newest(self, end_offset: int | None = None) -> list[SaidReason]:
        """What is kept, oldest first; only of offsets before `end_offset`, if that is given."""
        return [each for each in self._said if end_offset is None or each.offset < end_offset]


def carrying(
    records: Iterable[MetadataRecord], said: Sequence[SaidReason]
) -> Iterator[MetadataRecord]:
    """The same records, the first with these reasons."""
    fields = tagged(SaidReasons(reasons=list(said))) if said else None
    for position, record in enumerate(records):
        if position == 0 and fields:
            yield replace(record, unknown_tagged_fields=fields)
        else:
            yield record


def _said(reason: Reason, now_ms: int, offset: int) -> SaidReason:
    details = reason.details
    brokers = [*details.get("joined", ()), *details.get("left", ())]
    if "broker_id" in details:
        brokers.append(details["broker_id"])
    return SaidReason(
        offset=offset,
        at_ms=now_ms,
        code=str(reason.code),
        sentence=reason.sentence,
        partition=details.get("partition", ""),
        brokers=brokers,
    )
