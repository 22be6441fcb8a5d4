"""How long brokers were unreachable: counted while a controller is active, kept in the log.

What: `Absences` adds up, for each broker that is fenced, shutting down or unregistered, the time
between looks of the active controller, and says what is to be written down. It is written when an
absence begins, every so often while it lasts, and when it has lasted longer than the threshold:
from then on the broker is gone, until it is unfenced again. So the time survives the controller;
the next one lacks what passed since it was written last, which is never counted. Time without an
active controller is not counted either, nor is a pause of the controller itself: no step between
two looks counts for more than MOST_STEP.

Rule kept: an absence may seem shorter than it is, and never longer. Source: decision 0059.
Not here: what follows from it (`racks.py`, `reconciliation.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from anabranch.core.metadata.image import BrokerImage, MetadataImage
from anabranch.core.wire.metadata_records import BrokerAbsence

MOST_STEP_MS = 5_000
"""More than this between two looks is a pause of the controller: looks are 0.5 s apart at most."""
LEAST_CHECKPOINT_MS, MOST_CHECKPOINT_MS = 1_000, 10_000
"""Between two writes of an absence that lasts: a thirtieth of the threshold within these."""
CHECKPOINTS = 30
PRESENT = -1
"""In place of the time of a broker that is not absent any more, or that nobody asks about."""


class Absences:
    """One a controller term."""

    def __init__(self, now_ms: int) -> None:
        self._looked_ms = now_ms
        self._elapsed_ms: dict[int, int] = {}
        self._written_ms = now_ms

    def elapsed_ms(self, broker_id: int) -> int:
        """How long a broker is known to have been unreachable."""
        return self._elapsed_ms.get(broker_id, 0)

    def look(
        self, image: MetadataImage, now_ms: int, threshold_ms: int, *, counts: bool = True
    ) -> tuple[BrokerAbsence, ...]:
        """Count the time since the last look, unless it does not count; what is to be written."""
        step_ms = min(max(now_ms - self._looked_ms, 0), MOST_STEP_MS) if counts else 0
        self._looked_ms = now_ms
        self._follow(image, step_ms)
        checkpoint_ms = threshold_ms // CHECKPOINTS
        checkpoint_ms = min(max(checkpoint_ms, LEAST_CHECKPOINT_MS), MOST_CHECKPOINT_MS)
        is_due = now_ms - self._written_ms >= checkpoint_ms
        found = tuple(
            self._told(image, broker_id, is_gone=elapsed_ms > threshold_ms)
            for broker_id, elapsed_ms in sorted(self._elapsed_ms.items())
            if self._is_news(image, broker_id, elapsed_ms > threshold_ms, is_due=is_due)
        )
        if found:
            self._written_ms = now_ms
        return found

    def _follow(self, image: MetadataImage, step_ms: int) -> None:
        absent = {each for each, broker in image.brokers.items() if not broker.active}
        absent.update(each for each in image.absences if each not in image.brokers)
        for broker_id in self._elapsed_ms.keys() - absent:
            del self._elapsed_ms[broker_id]
        for broker_id in absent:
            known = image.absences.get(broker_id)
            if known is None:  # new, or the broker was back between two looks
                self._elapsed_ms[broker_id] = 0
            elif broker_id in self._elapsed_ms:
                self._elapsed_ms[broker_id] += step_ms
            else:
                self._elapsed_ms[broker_id] = known.elapsed_ms

    def _is_news(
        self, image: MetadataImage, broker_id: int, is_gone: bool, *, is_due: bool
    ) -> bool:
        known = image.absences.get(broker_id)
        if known is None:
            return True
        if known.is_gone:
            return False
        return is_gone or (is_due and self._elapsed_ms[broker_id] > known.elapsed_ms)

    def _told(self, image: MetadataImage, broker_id: int, *, is_gone: bool) -> BrokerAbsence:
        broker = image.brokers.get(broker_id)
        rack = image.absences[broker_id].rack if broker is None else broker.rack
        return BrokerAbsence(
            broker_id=broker_id,
            rack=rack,
            elapsed_ms=self._elapsed_ms[broker_id],
            is_gone=is_gone,
        )


def left_behind(image: MetadataImage, broker: BrokerImage) -> BrokerAbsence:
    """What is remembered of a broker that is unregistered while diskless partitions name it: its
    rack, and how long it has been unreachable."""
    known = image.absences.get(broker.broker_id)
    return BrokerAbsence(
        broker_id=broker.broker_id,
        rack=broker.rack,
        elapsed_ms=0 if known is None else known.elapsed_ms,
        is_gone=known is not None and known.is_gone,
    )


def forgotten(image: MetadataImage, named: Collection[int]) -> tuple[BrokerAbsence, ...]:
    """What takes unregistered brokers that are gone out of the metadata; `named` are those that
    diskless partitions still name."""
    return tuple(
        BrokerAbsence(broker_id=broker_id, elapsed_ms=PRESENT)
        for broker_id, absence in sorted(image.absences.items())
        if broker_id not in image.brokers and broker_id not in named
    )
