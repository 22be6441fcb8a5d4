"""The cordon of a plan: set when the plan begins to drain brokers, taken back when it is given up.

What: the setting `cordoned.log.dirs` of each broker that the plan's moves drain, as records of the
same batch. Why: without it a placer, or the reconciliation of diskless topics, would bring new
replicas to a broker while others leave it. Rules kept: only a cordon that the plan has set is taken
back, when the plan is cancelled or rolled back; one that is done stays, since the broker is to be
removed. Not here: what a cordon does (`brokers/cordons.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.controller.brokers.cordons import CORDON, EVERY_FOLDER, is_cordoned
from anabranch.core.metadata.image import RESOURCE_BROKER, MetadataImage
from anabranch.core.metadata.plan_state import MoveImage
from anabranch.core.placement.move_plans import drained
from anabranch.core.wire.metadata_records import ConfigRecord


def to_cordon(image: MetadataImage, moves: tuple[MoveImage, ...]) -> tuple[int, ...]:
    """The registered brokers that the moves drain and that are not cordoned yet."""
    return tuple(
        each for each in drained(moves) if each in image.brokers and not is_cordoned(image, each)
    )


def cordon_on(broker_ids: tuple[int, ...]) -> Iterator[ConfigRecord]:
    """The records that cordon brokers."""
    for each in broker_ids:
        yield _setting(each, EVERY_FOLDER)


def cordon_off(image: MetadataImage, broker_ids: tuple[int, ...]) -> Iterator[ConfigRecord]:
    """The records that take it back where it still holds."""
    for each in broker_ids:
        if is_cordoned(image, each):
            yield _setting(each, None)


def _setting(broker_id: int, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=RESOURCE_BROKER, resource_name=str(broker_id), name=CORDON, value=value
    )
