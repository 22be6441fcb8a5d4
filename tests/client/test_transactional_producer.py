"""Transactions of our own producer, in both flows, on a network that loses requests and answers."""

from __future__ import annotations

import itertools
import random

import pytest
from tests.client.transaction_kit import BadNetwork, batch_of, committed, create, running

from anabranch.client.cluster import Cluster
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.groups import committed_offsets
from anabranch.client.lanes import LaneSettings
from anabranch.client.prepared_transactions import check_open, end_prepared, settle
from anabranch.client.producer import Producer, ProducerSettings
from anabranch.client.transaction_requests import Position
from anabranch.client.transactional_producer import (
    ALLOWED,
    CommitUnknown,
    MustAbort,
    ProducerFenced,
    State,
    TransactionalProducer,
)
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.wire.messages.end_txn import EndTxnRequest

PARTITIONS = 3
NAMES = (f"transactional-{number}" for number in itertools.count())
QUICK = ProducerSettings(LaneSettings(retry_backoff_ms=1, retry_backoff_max_ms=20))
BRIEF = QUICK._replace(max_block_ms=300)


@pytest.fixture(scope="module", params=[2, 1, 0], ids=lambda level: f"level-{level}")
def bootstrap(request, tmp_path_factory):
    with running(tmp_path_factory.mktemp("cluster"), request.param) as servers:
        yield servers


@pytest.fixture
async def cluster(bootstrap):
    async with Cluster(bootstrap) as client:
        yield client


@pytest.fixture
async def topic(cluster):
    name = next(NAMES)
    await create(cluster, name, PARTITIONS)
    return name


@pytest.fixture
def begin(cluster):
    async def make(transactional_id, settings=QUICK, **more):
        producer = TransactionalProducer(cluster, transactional_id, settings, **more)
        await producer.init()
        return producer

    return make


async def until_committed(cluster, group, offsets):
    """Markers are written after the answer."""

    async def attempt():
        if await committed_offsets(cluster, group) != offsets:
            raise ConnectionLost("not yet")

    await cluster.retrying(attempt)


async def test_what_is_committed_is_there_at_the_offsets_that_were_told(cluster, topic, begin):
    producer = await begin(topic)
    expected = {}
    for number in range(4):
        producer.begin()
        handles = {}
        for partition in range(PARTITIONS):
            for each in range(3):
                values = [b"%d-%d-%d-%d" % (number, partition, each, at) for at in range(2)]
                handles[await producer.produce(topic, partition, batch_of(*values))] = (
                    partition,
                    values,
                )
        if number % 2:
            await producer.abort()
            continue
        await producer.commit()
        for handle, (partition, values) in handles.items():
            (landed,) = await handle
            assert landed.record_count == 2
            for at, value in enumerate(values):
                expected[partition, landed.base_offset + at] = value
    assert await committed(cluster, topic, PARTITIONS) == expected
    await producer.close()


async def test_the_idempotent_producer_tells_where_batches_landed(cluster):
    topic = next(NAMES)
    await create(cluster, topic, 1)
    producer = await Producer.open(cluster, QUICK)
    await producer.partition_count(topic)
    first = await producer.produce(topic, 0, batch_of(b"a", b"b"))
    second = await producer.produce(topic, 0, batch_of(b"c"))
    assert [each.base_offset for each in (*await first, *await second)] == [0, 2]
    await producer.close()


async def test_offsets_are_committed_with_the_transaction_or_not_at_all(cluster, topic, begin):
    producer = await begin(topic)
    group = f"{topic}-readers"
    for number, commits in enumerate((True, False, True, False)):
        producer.begin()
        await producer.produce(topic, 0, batch_of(b"%d" % number))
        await producer.send_offsets(group, {(topic, 1): Position(number, metadata="batch")})
        await (producer.commit() if commits else producer.abort())
        left = number if commits else number - 1
        await until_committed(cluster, group, {(topic, 1): left})
    await producer.close()


async def test_a_second_producer_fences_the_first_and_ends_its_transaction(cluster, topic, begin):
    first = await begin(topic)
    first.begin()
    handle = await first.produce(topic, 0, batch_of(b"lost"))
    await handle
    second = await begin(topic)
    second.begin()
    await second.produce(topic, 0, batch_of(b"kept"))
    await second.commit()
    await first.produce(topic, 0, batch_of(b"late"))
    with pytest.raises(ProducerFenced, match=f"{topic}.* another producer with this id"):
        await first.commit()
    with pytest.raises(ProducerFenced):
        first.begin()
    assert list((await committed(cluster, topic, PARTITIONS)).values()) == [b"kept"]


async def test_a_transaction_that_takes_too_long_is_aborted(cluster, topic, begin):
    producer = await begin(topic, transaction_timeout_ms=300)
    producer.begin()
    await (await producer.produce(topic, 0, batch_of(b"slow")))
    assert await committed(cluster, topic, PARTITIONS) == {}
    with pytest.raises(ProducerFenced, match=r"longer than its timeout \(300 ms\)"):
        await producer.commit()


async def test_a_batch_that_cannot_be_written_fails_its_transaction_and_not_the_next(
    cluster, topic, begin
):
    producer = await begin(topic)
    producer.begin()
    await producer.produce(topic, 0, batch_of(b"gone"))
    await producer.produce(topic, 1, batch_of(b"x" * (2 << 20)))
    with pytest.raises(MustAbort, match="MESSAGE_TOO_LARGE") as refused:
        await producer.commit()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(MustAbort):
        await producer.produce(topic, 0, batch_of(b"more"))
    await producer.abort()
    producer.begin()
    await producer.produce(topic, 1, batch_of(b"kept"))
    await producer.commit()
    assert list((await committed(cluster, topic, PARTITIONS)).values()) == [b"kept"]


@pytest.mark.parametrize("is_made", [True, False])
async def test_a_commit_without_an_answer_is_neither_made_nor_refused(
    cluster, topic, begin, monkeypatch, is_made
):
    producer = await begin(topic, BRIEF)
    producer.begin()
    await producer.produce(topic, 0, batch_of(b"value"))
    await producer.flush()
    send = Connection.send

    async def losing(connection, message, *args, **kwargs):
        if isinstance(message, EndTxnRequest):
            if is_made:
                await send(connection, message, *args, **kwargs)
            raise ConnectionLost("the answer was lost")
        return await send(connection, message, *args, **kwargs)

    monkeypatch.setattr(Connection, "send", losing)
    with pytest.raises(CommitUnknown, match="did not confirm the commit"):
        await producer.commit()
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match=r"call init\(\)"):
        producer.begin()
    await producer.init()
    found = await committed(cluster, topic, PARTITIONS)
    assert list(found.values()) == ([b"value"] if is_made else [])


@pytest.mark.parametrize("commits", [True, False])
async def test_a_prepared_transaction_is_ended_by_another_client(bootstrap, topic, begin, commits):
    producer = await begin(topic)
    producer.begin()
    await producer.produce(topic, 0, batch_of(b"value"))
    prepared = await producer.prepare()
    await producer.close()
    async with Cluster(bootstrap) as other:
        await check_open(other, prepared)
        for _ in range(2):  # the answer to the first one may be lost
            await end_prepared(other, prepared, commits=commits)
        found = await committed(other, topic, PARTITIONS)
        assert list(found.values()) == ([b"value"] if commits else [])
        with pytest.raises(ClientFault, match="is no longer open"):
            await check_open(other, prepared)


async def test_what_was_left_open_is_settled_by_the_beginning_of_its_name(cluster, topic, begin):
    for number in range(3):
        producer = await begin(f"{topic}/{number}")
        producer.begin()
        await (await producer.produce(topic, 0, batch_of(b"%d" % number)))
    kept = f"{topic}/2"
    assert sorted(await settle(cluster, f"{topic}/", but=kept)) == [f"{topic}/0", f"{topic}/1"]
    assert await settle(cluster, f"{topic}/") == [kept]
    assert await committed(cluster, topic, PARTITIONS) == {}


async def test_a_transaction_without_a_batch_needs_no_end(topic, begin):
    producer = await begin(topic)
    producer.begin()
    assert await producer.prepare() is None
    producer.begin()
    await producer.commit()


def test_calls_at_a_wrong_time_are_refused_with_the_right_one():
    for call, states in ALLOWED.items():
        for state in set(State) - states:
            producer = TransactionalProducer(Cluster("127.0.0.1:1"), "some-id")
            producer.state = state
            with pytest.raises(RuntimeError, match="'some-id'") as refused:
                producer._check(call)
            assert state.value in str(refused.value)


@pytest.mark.parametrize("seed", range(12))
async def test_every_transaction_is_there_whole_or_not_at_all(
    cluster, topic, begin, monkeypatch, seed
):
    """Whatever is lost: what was committed is there once, what was aborted is not, and what is not
    known is there whole or not at all, its offsets included."""
    chance = random.Random(seed)
    network = BadNetwork(chance, 0.15)
    network.install(monkeypatch)
    producer = await begin(topic, QUICK._replace(max_block_ms=20_000))
    outcomes, places, group = {}, {}, f"{topic}-readers"
    for number in range(25):
        producer.begin()
        handles = []
        for each in range(chance.randrange(6)):
            partition = chance.randrange(PARTITIONS)
            value = b"%d-%d" % (number, each)
            handles.append((value, await producer.produce(topic, partition, batch_of(value))))
            places[value] = partition
        try:
            if chance.random() < 0.5:
                await producer.send_offsets(group, {(topic, 0): Position(number)})
            if chance.random() < 0.3:
                await producer.abort()
                outcomes[number] = False
                continue
            await producer.commit()
            outcomes[number] = True
            for value, handle in handles:
                (landed,) = await handle
                places[value] = places[value], landed.base_offset
        except MustAbort:
            await producer.abort()
            outcomes[number] = False
        except CommitUnknown:
            outcomes[number] = None
            await producer.init()
    await producer.close()
    network.rate = 0
    found = await committed(cluster, topic, PARTITIONS)
    values = list(found.values())
    assert len(set(values)) == len(values)
    for number, outcome in outcomes.items():
        written = {each for each in places if each.startswith(b"%d-" % number)}
        there = written & set(values)
        assert (
            there in (written, set())
            if outcome is None
            else there == (written if outcome else set())
        )
    for value, place in places.items():
        if isinstance(place, tuple) and place[1] >= 0:
            assert found[place] == value
