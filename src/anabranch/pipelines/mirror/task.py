"""A wave on Spark: its tasks, each of which works on some slots until the wave's time is over.

What: `run_wave` hands each task its slots and gives the answers when all have ended. Records never
pass through the JVM: a task talks to both clusters by itself.
"""

from __future__ import annotations

import asyncio
import base64
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.pipelines.mirror.slot import run_slot
from anabranch.pipelines.mirror.work import SlotAnswer, SlotWork
from anabranch.pipelines.worker import leave_out_of_collections

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER = "answer string"


def run_wave(
    spark: SparkSession, tasks: Sequence[Sequence[SlotWork]], seconds: float
) -> list[SlotAnswer]:
    """Run one wave. Raises what Spark raises when a task has failed for good."""
    packed = [base64.b64encode(pickle.dumps(tuple(each))).decode() for each in tasks]
    rows = spark.range(0, len(packed), 1, len(packed)).mapInArrow(_task(packed, seconds), ANSWER)
    return [
        answer
        for row in rows.collect()
        for answer in msgspec.json.decode(row.answer, type=list[SlotAnswer])
    ]


def _task(packed: list[str], seconds: float) -> Any:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                works = pickle.loads(base64.b64decode(packed[number]))
                answer = msgspec.json.encode(asyncio.run(run_slots(works, seconds))).decode()
                yield pa.RecordBatch.from_arrays([pa.array([answer])], names=["answer"])
        leave_out_of_collections()

    return run


async def run_slots(works: Sequence[SlotWork], seconds: float) -> list[SlotAnswer]:
    """Some slots in one process, at the same time."""
    return list(await asyncio.gather(*(run_slot(each, seconds) for each in works)))
