"""The plan of moves, in records of our own. What a plan holds: `plan_state.py`."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.plan_state import plan_after, plan_records
from anabranch.core.wire import own_records as records
from anabranch.core.wire.schema import Message


def _plan(builder: ImageBuilder, record: Message) -> None:
    builder.scalars["plan"] = plan_after(builder.scalars.get("plan", builder.image.plan), record)


RULES: Rules = {
    records.PlanRecord: _plan,
    records.PlanMovesRecord: _plan,
    records.PlanProgressRecord: _plan,
}


def snapshot(image: MetadataImage) -> Iterator[Message]:
    """The plan, its moves, and how far they are."""
    if image.plan is not None:
        yield from plan_records(image.plan)
