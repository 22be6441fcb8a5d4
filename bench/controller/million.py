"""What a change of metadata costs in a cluster with a million partitions.

`python bench/controller/million.py [PARTITIONS]` fills a controller in memory and prints the
time of single decisions (plan, encode, replay) in a small and in the large cluster: they should
be alike.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from random import Random

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api.registry import handlers
from anabranch.core.controller.controller import Controller
from anabranch.core.metadata.batches import encode_batch
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.outcome import Propose
from anabranch.core.request import Request
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.core.wire.metadata_records import RegisterBrokerRecord

TOPIC_PARTITIONS = 1000
ROUNDS = 200


def new_controller() -> Controller:
    """A controller with two unfenced brokers."""
    controller = Controller(1, "bench", BrokerConfig.of(), Random(1))
    controller.begin_term(1, MetadataImage.empty(), CommittedLog(), 0)
    brokers = [
        RegisterBrokerRecord(broker_id=number, broker_epoch=number, fenced=False)
        for number in (1, 2)
    ]
    controller.advance(brokers, 1)
    return controller


def ask(controller: Controller, body: CreateTopicsRequest | DeleteTopicsRequest) -> None:
    """One request: decide, encode, replay."""
    handler = handlers()[body.api_key]
    request = Request(
        body.api_key, handler.versions[-1], 1, None, body, ANONYMOUS, "CONTROLLER", "", 1
    )
    assert handler.controller is not None
    outcome = handler.controller(controller, request, 0)
    assert isinstance(outcome, Propose)
    records = outcome.result.records
    first = controller.image.next_offset
    encode_batch(records, base_offset=first, epoch=1, now_ms=0)
    controller.advance(records, first + len(records) - 1)


def create(controller: Controller, name: str, partitions: int) -> None:
    """Create a topic."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    ask(controller, CreateTopicsRequest(topics=[topic]))


def delete(controller: Controller, name: str) -> None:
    """Delete a topic."""
    ask(controller, DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))


def microseconds(call: Callable[[], None]) -> float:
    """The mean of some rounds."""
    begin = time.perf_counter()
    for _ in range(ROUNDS):
        call()
    return (time.perf_counter() - begin) / ROUNDS * 1e6


def one_topic(controller: Controller) -> None:
    """A topic comes and goes."""
    create(controller, "one", 1)
    delete(controller, "one")


def main() -> None:
    """Fill, measure, print."""
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    controller = new_controller()
    create(controller, "first", TOPIC_PARTITIONS)
    small = microseconds(lambda: one_topic(controller))
    begin = time.perf_counter()
    for number in range(partitions // TOPIC_PARTITIONS - 1):
        create(controller, f"topic-{number}", TOPIC_PARTITIONS)
    filled_s = time.perf_counter() - begin
    large = microseconds(lambda: one_topic(controller))
    print(f"filled {partitions} partitions in {filled_s:.1f} s")
    print(
        f"create and delete a topic: {small:.0f} us with 1000 partitions, {large:.0f} us with all"
    )


if __name__ == "__main__":
    main()
