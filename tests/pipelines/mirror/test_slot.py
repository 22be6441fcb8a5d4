"""A slot between two clusters, without Spark: what the source has is what the target gets."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import Record, build_batch
from anabranch.pipelines.mirror.driver_flow import FlowState
from anabranch.pipelines.mirror.task import run_slots

EXACTLY_ONCE = {
    "west.exactly.once.source.support": "enabled",
    "east.consumer.isolation.level": "read_committed",
}
MODES = pytest.mark.parametrize("more", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])


def batch(first, count, **more):
    """A batch whose values count on."""
    records = [Record(each - first, 1_000 + each, b"k%d" % each, b"v%d" % each) for each in
               range(first, first + count)]  # fmt: skip
    return build_batch(records, **more)


def mirror(clusters, topic, more, *, seconds=2.0, slots=1, flow=0, during=None):
    """Mirror one topic for a wave, without the heartbeats of other tests; the answers."""
    alone = {"topics": topic, "heartbeats.replication.enabled": "false"}
    config = clusters.config(**{**alone, **more})

    async def work():
        state = FlowState(config.flows[flow], print)
        try:
            await state.open()
            await state.topics.refresh(state.source, state.target)
            wave = asyncio.create_task(run_slots(await state.plan(slots), seconds))
            if during is not None:
                await asyncio.to_thread(during)
            return await wave
        finally:
            await state.close()

    return asyncio.run(work())


def moved(answers, topic):
    """The records that were moved of a topic; heartbeats of other tests may come with it."""
    every = [each for answer in answers for each in answer.moved]
    return sum(each.records for each in every if each.topic == f"east.{topic}")


def seen(records):
    """What readers see, without offsets."""
    return [each[1:] for each in records]


@MODES
def test_a_wave_mirrors_what_is_there_and_the_next_goes_on(clusters, more):
    topic = clusters.topic(partitions=2)
    clusters.produce(topic, 0, batch(0, 5), batch(5, 3_000), batch(3_005, 2, codec=Codec.LZ4))
    clusters.produce(topic, 1, batch(0, 1))
    answers = mirror(clusters, topic, more)
    assert [each.faults for each in answers] == [{}] and answers[0].notes == []
    assert moved(answers, topic) == 3_008
    clusters.produce(topic, 0, batch(3_007, 10))
    answers = mirror(clusters, topic, more)
    assert moved(answers, topic) == 10 and answers[0].notes == []
    for partition in (0, 1):
        source = clusters.read(clusters.east, topic, partition)
        target = clusters.read(clusters.west, f"east.{topic}", partition)
        assert seen(target) == seen(source)
