"""Any Fetch is answered with what the log's files hold, byte for byte, however it is sent.

What is drawn: the version, partitions and limits, who asks and how (a consumer, of committed
records, a follower; in a row, slowly), whether records are lent, whether they stay in the page
cache. `ANABRANCH_TEST_SECONDS` makes it longer, `ANABRANCH_TEST_SEED` repeats a seed.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import pytest
from any_answer_kit import (
    LOOPS,
    Client,
    LoopNode,
    any_batch,
    read_log,
    seconds,
    seed,
    topic_ids_of,
    wait_for,
)
from confluent_kafka.admin import AdminClient, NewTopic
from server_kit import SECONDS

from anabranch.client.ports import free_ports
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from anabranch.core.wire.messages.end_txn import EndTxnRequest
from anabranch.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.server import loans
from anabranch.server.loans import Lender

TOPICS = {"one": 1, "many": 49}
VERSIONS = range(4, 18)
FOLLOWER = 2
PRODUCERS = 3
DEFAULT_LENT_BYTES = loans.LENT_BYTES
LIMITS = (0, 1, 61, 1_000, 20_000, 65_536, 70_000, 300_000, 1 << 20, 4 << 20, 50 << 20)
PATIENCE_MS = (0, 1, 40)


class Written:
    """A node that leads partitions with all kinds of batches; its follower has gone."""

    def __init__(self, loop, folder, chance):
        self.chance = chance
        [controller] = free_ports(1)
        self.folder = folder / "1"
        self.node = LoopNode(
            loop, self.folder, log_segment_bytes=4 << 20, message_max_bytes=4 << 20,
            listeners=f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller}",
            log_index_interval_bytes=chance.choice((200, 4096, 1 << 20)),
            transaction_state_log_replication_factor=1, transaction_state_log_num_partitions=1,
            transaction_state_log_min_isr=1,
        ).start()  # fmt: skip
        follower = LoopNode(
            loop, folder / "2", process_roles="broker", node_id=FOLLOWER,
            controller_quorum_bootstrap_servers=f"127.0.0.1:{controller}",
            controller_listener_names="CONTROLLER", listeners="PLAINTEXT://127.0.0.1:0",
        ).start()  # fmt: skip
        admin = AdminClient({"bootstrap.servers": self.node.bootstrap})
        topics = [
            NewTopic(name, count, replica_assignment=[[1, FOLLOWER]] * count)
            for name, count in TOPICS.items()
        ]
        for created in admin.create_topics(topics, operation_timeout=SECONDS).values():
            created.result(SECONDS)
        follower.stop()
        self.client = Client(self.node.bootstrap)
        for topic, count in TOPICS.items():
            for partition in range(count):
                self._fill(topic, partition)
        self._write_transactions()
        self.logs = {
            (topic, partition): read_log(self.folder / f"{topic}-{partition}")
            for topic, count in TOPICS.items()
            for partition in range(count)
        }
        self.topic_ids = topic_ids_of(self.client, TOPICS)

    def close(self):
        self.client.close()
        self.node.stop()

    def _fill(self, topic, partition):
        for _ in range(self.chance.randrange(14 if topic == "many" else 40)):
            self._produce(topic, partition, any_batch(self.chance))

    def _produce(self, topic, partition, batch, transactional_id=None):
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=transactional_id, acks=-1, timeout_ms=SECONDS * 1000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )  # fmt: skip
        until = time.monotonic() + SECONDS
        while True:
            [answer] = self.client.ask(request, 9).responses[0].partition_responses
            if not answer.error_code:
                return
            assert time.monotonic() < until, ErrorCode(answer.error_code)
            time.sleep(0.01)

    def _write_transactions(self):
        """Some commit, some abort, a few stay open; records of others are between theirs."""
        for number in range(PRODUCERS):
            name = f"producer-{number}"
            self._until_fine(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
            producer = self._until_fine(
                InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000), 4
            )
            epoch = producer.producer_epoch
            sequences = {}
            for is_last in (False, False, False, True):
                places = [
                    (topic, partition)
                    for topic, count in TOPICS.items()
                    for partition in range(count)
                    if self.chance.random() < 0.2
                ]
                for topic, partition in places:
                    named = AddPartitionsToTxnTopic(name=topic, partitions=[partition])
                    self._until_fine(
                        AddPartitionsToTxnRequest(
                            v3_and_below_transactional_id=name,
                            v3_and_below_producer_id=producer.producer_id,
                            v3_and_below_producer_epoch=epoch,
                            v3_and_below_topics=[named],
                        ),
                        3,
                    )
                    for _ in range(self.chance.randrange(1, 3)):
                        place = topic, partition
                        batch = any_batch(
                            self.chance,
                            producer_id=producer.producer_id, producer_epoch=epoch,
                            base_sequence=sequences.get(place, 0), transactional=True,
                        )  # fmt: skip
                        count = int.from_bytes(batch[57:61])
                        sequences[place] = sequences.get(place, 0) + count
                        self._produce(topic, partition, batch, name)
                    self._produce(topic, partition, any_batch(self.chance))
                if places and not is_last:
                    self._until_fine(
                        EndTxnRequest(
                            transactional_id=name, producer_id=producer.producer_id,
                            producer_epoch=epoch, committed=self.chance.random() < 0.4,
                        ),
                        3,
                    )  # fmt: skip

    def _until_fine(self, request, version):
        """The coordinator may still be loading, or at work on what came before."""
        until = time.monotonic() + SECONDS
        while True:
            answer = self.client.ask(request, version)
            code = getattr(answer, "error_code", 0)
            for each in getattr(answer, "coordinators", []):
                code = code or each.error_code
            for topic in getattr(answer, "results_by_topic_v3_and_below", []):
                code = code or topic.results_by_partition[0].partition_error_code
            if not code:
                return answer
            assert time.monotonic() < until, ErrorCode(code)
            time.sleep(0.01)


@dataclass
class Ask:
    """One fetch, and who sends it."""

    version: int
    places: list
    offsets: list
    limits: list
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    is_follower: bool
    committed_only: bool
    opens_session: bool

    @classmethod
    def any(cls, chance, logs):
        wanted = chance.choice((1, 1, 2, 5, 20, len(logs)))
        places = chance.sample(sorted(logs), wanted)
        places.sort(key=lambda place: place[0])  # a request names each topic once
        is_follower = chance.random() < 0.2
        return cls(
            version=chance.choice(VERSIONS),
            places=places,
            offsets=[chance.choice((0, chance.randint(0, logs[at].end_offset))) for at in places],
            limits=[chance.choice(LIMITS) for _ in places],
            max_bytes=chance.choice(LIMITS if wanted < 20 else LIMITS[:-1]),
            min_bytes=chance.choice((0, 1, 1, 100_000)),
            max_wait_ms=chance.choice(PATIENCE_MS),
            is_follower=is_follower,
            committed_only=not is_follower and chance.random() < 0.4,
            opens_session=chance.random() < 0.2,
        )

    def request(self, topic_ids):
        topics = {}
        for (topic, partition), offset, limit in zip(
            self.places, self.offsets, self.limits, strict=True
        ):
            part = FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=limit
            )
            topics.setdefault(topic, []).append(part)
        replica = FOLLOWER if self.is_follower else -1
        return FetchRequest(
            replica_id=replica,
            replica_state=ReplicaState(replica_id=replica, replica_epoch=-1),
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=int(self.committed_only),
            session_epoch=0 if self.opens_session and self.version >= 7 else -1,
            topics=[
                FetchTopic(topic=topic, topic_id=topic_ids[topic], partitions=parts)
                for topic, parts in topics.items()
            ],
        )

    def check(self, answer, logs):
        assert answer.error_code == 0
        found = [part for topic in answer.responses for part in topic.partitions]
        assert len(found) == len(self.places)
        left, at_least_one = self.max_bytes, True
        for place, offset, limit, part in zip(
            self.places, self.offsets, self.limits, found, strict=True
        ):
            log = logs[place]
            assert (part.partition_index, part.error_code) == (place[1], 0), place
            upto = log.last_stable_offset if self.committed_only else log.end_offset
            held, end = log.read(offset, min(limit, left), upto, at_least_one)
            assert len(bytes(part.records or b"")) == len(held), (place, offset, limit)
            assert bytes(part.records or b"") == held, (place, offset, limit)
            assert part.high_watermark == log.end_offset
            assert part.last_stable_offset == log.last_stable_offset
            if self.committed_only:
                told = [(e.producer_id, e.first_offset) for e in part.aborted_transactions]
                assert sorted(told) == (log.aborted_within(offset, end) if held else []), place
            else:
                assert part.aborted_transactions is None
            left, at_least_one = max(0, left - len(held)), at_least_one and not held


@pytest.fixture(params=LOOPS)
def drawn(request, tmp_path, monkeypatch):
    """(where numbers come from, a written node, a way to set how it lends)."""
    number = seed()
    print(f"ANABRANCH_TEST_SEED={number}")  # noqa: T201 - shown when it fails
    chance = random.Random(number)
    kinds = Kinds(chance, Lender.is_in_memory)
    monkeypatch.setattr(Lender, "is_in_memory", lambda *where: kinds.is_in_memory(*where))
    written = Written(request.param, tmp_path, chance)
    yield chance, written, kinds, monkeypatch
    written.close()


class Kinds:
    """What is lent, and whether it is in memory: as the kernel says, always, or at random, so that
    parts of an answer are brought back while it is on its way."""

    def __init__(self, chance, real):
        self._chance = random.Random(chance.random())
        self._real = real
        self.kind = "real"

    def is_in_memory(self, lender, *where):
        if self.kind == "real":
            return self._real(lender, *where)
        return self.kind == "always" or self._chance.random() < 0.5


@pytest.mark.for_seconds
def test_any_fetch_is_answered_with_the_bytes_of_the_log(drawn):
    chance, written, kinds, monkeypatch = drawn
    until, asked = time.monotonic() + seconds(6), 0
    while time.monotonic() < until:
        least = chance.choice((1, DEFAULT_LENT_BYTES, DEFAULT_LENT_BYTES, 1 << 60))
        monkeypatch.setattr(loans, "LENT_BYTES", least)
        kinds.kind = chance.choice(("real", "always", "random"))
        client = Client(written.node.bootstrap, chance.choice((0, 0, 4_096, 65_536)))
        for _ in range(chance.choice((1, 5, 20))):
            asks = [Ask.any(chance, written.logs) for _ in range(chance.choice((1, 1, 2, 4)))]
            for each in asks:
                client.send(each.request(written.topic_ids), each.version)
            slow = chance.random() < 0.1
            for each in asks:
                answer = client.answer(1 << 16 if slow else 1 << 20, 0.0005 if slow else 0)
                try:
                    each.check(answer, written.logs)
                except AssertionError as fault:
                    raise AssertionError(f"{each}, lent from {least}, {kinds.kind}") from fault
                asked += 1
        client.close()
    wait_for(lambda: written.node.node.files.lender.count == 0)
    assert asked > 20
