"""What metadata costs with many partitions: to create them, to lose a broker, to join.

`without_folders` is the controller of `core` in this process, the real SQLite store, and one
broker's replay of every committed batch: no network and no log folders, as 100,000 partitions with
three replicas are 300,000 folders. `with_folders` is three real brokers with everything on disk, a
tenth as many partitions. Both go through three sizes, doubling, and print how time grows beside the
number of partitions: 1 is linear.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any

import outage
import workloads
from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewTopic
from scale import scaled
from servers import Server
from trio import NUMBERS, Trio
from workloads import Sample

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api.registry import handlers
from anabranch.core.controller.controller import Controller
from anabranch.core.metadata.batches import decode_batches, encode_batch
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.store import Committed, Lease, StoredBatch
from anabranch.core.outcome import Propose
from anabranch.core.request import Request
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.core.wire.metadata_records import MetadataRecord
from anabranch.stores.metadata.sqlite import SqliteStore

PARTITIONS = 100_000
PARTITIONS_WITH_FOLDERS = 10_000
TOPIC_PARTITIONS = 1_000
SIZES = (4, 2, 1)
"""The whole number is divided by these in turn."""
EPOCH = 1
READ_BYTES = 8 << 20
CLUSTER = "bench"
VICTIM = 1
WAIT_SECONDS = 300.0


class Metadata:
    """A controller that commits to a real store, and one broker that follows."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.controller = Controller(1, CLUSTER, BrokerConfig.of(), Random(1))
        self.controller.begin_term(EPOCH, MetadataImage.empty(), CommittedLog(), 0)
        self.lease: Lease | None = None
        self.followed = MetadataImage.empty()
        self.now_ms = 0

    async def begin(self) -> None:
        """Take the first lease, and write what a cluster begins with."""
        await self.store.cluster_id(CLUSTER)
        self.lease = await self.store.take_lease(await self.store.lease(), 1, "bench", "")
        await self.commit(bootstrap_records(1))
        for number in NUMBERS:
            await self.join(number, 1)

    async def commit(self, records: Iterable[MetadataRecord]) -> None:
        """Encode, plan on, commit, and replay as a broker does."""
        records = tuple(records)
        if not records:
            return
        first = self.controller.image.next_offset
        payload = encode_batch(records, base_offset=first, epoch=EPOCH, now_ms=self.now_ms)
        end = first + len(records)
        self.controller.advance(records, end - 1)
        batch = StoredBatch(first, end, EPOCH, payload)
        assert self.lease is not None
        answer = await self.store.append(self.lease, first, [batch])
        if not isinstance(answer, Committed):
            raise SystemExit(f"the store did not commit: {answer}")
        self.followed = replayed(self.followed, payload)

    async def ask(self, body: Any) -> Any:
        """One request to the controller, committed."""
        handler = handlers()[body.api_key]
        request = Request(
            body.api_key, handler.versions[-1], 1, None, body, ANONYMOUS, "CONTROLLER", "", 1
        )
        assert handler.controller is not None
        outcome = handler.controller(self.controller, request, self.now_ms)
        if not isinstance(outcome, Propose):
            return outcome
        await self.commit(outcome.result.records)
        return outcome.result.response

    async def create(self, partitions: int) -> None:
        """Topics of up to a thousand partitions with three replicas, one request each."""
        for first in range(0, partitions, TOPIC_PARTITIONS):
            count = min(TOPIC_PARTITIONS, partitions - first)
            topic = CreatableTopic(
                name=f"topic-{first}", num_partitions=count, replication_factor=len(NUMBERS)
            )
            await self.ask(CreateTopicsRequest(topics=[topic]))

    async def fail_over(self) -> int:
        """One broker falls silent until it leads nothing; how many leaderships moved."""
        led = leaderships(self.controller.image)
        self.now_ms += self.controller.config.broker_session_timeout_ms + 1
        for number in NUMBERS:
            if number != VICTIM:
                await self.beat(number)
        while not self.controller.image.brokers[VICTIM].fenced:
            result = self.controller.tick(self.now_ms)
            self.now_ms = max(self.now_ms + 1, self.controller.next_tick_ms)
            await self.commit(result.records if result is not None else ())
        return led - leaderships(self.followed)

    async def join(self, number: int, incarnation: int) -> None:
        """A process registers, reads the whole log, and is let in."""
        await self.ask(registration(number, incarnation))
        image, offset = MetadataImage.empty(), 0
        while batches := await self.store.read(offset, READ_BYTES):
            for batch in batches:
                image = replayed(image, batch.payload)
            offset = batches[-1].end_offset
        await self.beat(number)
        if self.controller.image.brokers[number].fenced:
            raise SystemExit(f"broker {number} was not let in")

    async def beat(self, number: int) -> None:
        """A heartbeat of a broker that has read everything."""
        image = self.controller.image
        epoch = image.brokers[number].epoch
        await self.ask(
            BrokerHeartbeatRequest(
                broker_id=number, broker_epoch=epoch, current_metadata_offset=image.offset
            )
        )


def replayed(image: MetadataImage, payload: bytes) -> MetadataImage:
    """The image with committed bytes applied."""
    for batch in decode_batches(payload):
        image, _ = replay_batch(image, batch.records, batch.last_offset, EPOCH)
    return image


def leaderships(image: MetadataImage) -> int:
    """How many partitions the victim leads."""
    topics = image.topics_by_id.values()
    return sum(each.leader == VICTIM for topic in topics for each in topic.partitions.values())


def registration(number: int, incarnation: int) -> BrokerRegistrationRequest:
    """What a broker's process says of itself."""
    return BrokerRegistrationRequest(
        broker_id=number,
        cluster_id=CLUSTER,
        incarnation_id=bytes([number, incarnation]) * 8,
        listeners=[Listener(name="PLAINTEXT", host="localhost", port=9092)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        log_dirs=[bytes([number + 100]) * 16],
    )


async def one_size(path: str, partitions: int) -> dict[str, float]:
    """Seconds of each act with so many partitions."""
    store = await SqliteStore.open(path)
    metadata = Metadata(store)
    await metadata.begin()

    async def seconds(act: Callable[[], Awaitable[object]]) -> float:
        begin = time.perf_counter()
        await act()
        return time.perf_counter() - begin

    async def fail_over() -> None:
        moved = await metadata.fail_over()
        if not 0 < moved <= partitions // 2:
            raise SystemExit(f"{moved} leaderships of {partitions} moved")

    taken = {
        "create": await seconds(lambda: metadata.create(partitions)),
        "failover": await seconds(fail_over),
        "join": await seconds(lambda: metadata.join(VICTIM, 2)),
    }
    await store.close()
    return taken


def figures(by_size: dict[int, dict[str, float]]) -> Sample:
    """Every time, and the growth from the smallest to the largest size beside the sizes' own."""
    small, large = min(by_size), max(by_size)
    sample = Sample()
    for act in by_size[small]:
        for size, taken in sorted(by_size.items()):
            sample.figures[f"{act} s, {size:,}"] = taken[act]
    grown = [by_size[large][act] / max(by_size[small][act], 0.01) for act in by_size[small]]
    sample.figures["growth of the worst"] = max(grown) * small / large
    return sample


def without_folders(server: Server) -> Sample:
    """The three acts at three sizes, in this process; the server is only a folder for the store."""
    whole = scaled(PARTITIONS)
    by_size = {}
    for part in SIZES:
        path = str(server.folder.resolve() / f"store-{part}.db")
        by_size[whole // part] = asyncio.run(one_size(path, whole // part))
    return figures(by_size)


def with_folders(server: Server) -> Sample:
    """The three acts at three sizes, on a cluster of three that grows."""
    assert isinstance(server, Trio)
    server.start()
    server.settle()
    whole = scaled(PARTITIONS_WITH_FOLDERS)
    by_size: dict[int, dict[str, float]] = {}
    names: list[str] = []
    have, created = 0, 0.0
    for part in SIZES:
        created += grow(server, names, whole // part - have)
        have = whole // part
        by_size[have] = {"create": created, **restart_one(server, names, have)}
    return figures(by_size)


def grow(server: Trio, names: list[str], partitions: int) -> float:
    """Create so many more; seconds until each is led and every replica has its folder."""
    admin = workloads.admin_of(server)
    begin = time.perf_counter()
    while partitions > 0:
        count = min(TOPIC_PARTITIONS, partitions)
        name = f"many-{len(names)}"
        wanted = NewTopic(name, count, server.replicas)
        admin.create_topics([wanted])[name].result(WAIT_SECONDS)
        workloads.await_leaders(admin, [name], count)
        names.append(name)
        partitions -= count
    wanted_folders = sum(count_of(admin, name) for name in names)
    for each in server.nodes.values():
        data = each.folder / "data"
        outage.await_true(
            lambda data=data: sum(1 for _ in data.glob("many-*")) >= wanted_folders,
            f"{data}: folders missing",
            WAIT_SECONDS,
        )
    return time.perf_counter() - begin


def count_of(admin: Any, name: str) -> int:
    """How many partitions the topic has."""
    return len(admin.list_topics(name, timeout=60).topics[name].partitions)


def restart_one(server: Trio, names: list[str], partitions: int) -> dict[str, float]:
    """SIGKILL of a node until it leads nothing; then its start until all is in sync again."""
    _, victim = outage.choose(server, decides=False)
    begin = time.perf_counter()
    server.nodes[victim].kill()
    await_all(server, partitions, lambda each: each.leader not in (victim, -1))
    failover = time.perf_counter() - begin
    begin = time.perf_counter()
    server.nodes[victim].start()
    await_all(server, partitions, lambda each: len(each.isrs) == len(NUMBERS))
    joined = time.perf_counter() - begin
    return {"failover": failover, "join": joined}


def await_all(server: Trio, partitions: int, is_well: Callable[[Any], bool]) -> None:
    """Wait until all partitions are as wanted."""
    admin = workloads.admin_of(server)

    def are_well() -> bool:
        try:
            topics = admin.list_topics(timeout=60).topics
        except KafkaException:
            return False
        states = [
            each
            for name, topic in topics.items()
            if name.startswith("many-")
            for each in topic.partitions.values()
        ]
        return len(states) == partitions and all(map(is_well, states))

    outage.await_true(are_well, f"{server.name}: partitions are not well", WAIT_SECONDS)
