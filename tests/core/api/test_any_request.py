"""R15: whatever a request says, its handler answers in the request's version, or refuses by name.

Requests are made from the notation with values that a handler may trip over: extreme numbers, names
that exist and names that may not, ids of existing topics, batches that were damaged. Seeded, so a
failure comes back.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.core.api.in_memory_node import InMemoryNode, batch
from tests.core.controller.world import CLUSTER, World

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api.registry import handlers
from anabranch.core.errors import ApiError, ProtocolError
from anabranch.core.outcome import Cold, Forward, Hangup, NoAnswer, Propose, Wait
from anabranch.core.request import Request
from anabranch.core.types import METADATA_TOPIC_ID, ZERO_TOPIC_ID
from anabranch.core.wire.codec import decode, encode_bytes
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.frame import frame_response, read_response
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.core.wire.schema import WireType, active_fields

REQUESTS_EACH = 150
NUMBERS = [-(2**63), -(2**31), -5, -4, -3, -2, -1, 0, 1, 2, 3, 100, 2**31 - 1, 2**63 - 1]
NAMES = [
    "t", "u", "missing", "", "..", "a/b", "__consumer_offsets", "__cluster_metadata", "x" * 250,
    "t.u", "t_u", "\u2028", "1", "n" * 32_767, "retention.ms", "cleanup.policy", "compact", "-1", "PLAINTEXT",
]  # fmt: skip
BROKER_KEYS = sorted(key for key, handler in handlers().items() if handler.broker)
CONTROLLER_KEYS = sorted(key for key, handler in handlers().items() if handler.controller)


class Maker:
    """Makes messages of a class from the notation, with hostile values."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.ids: list[bytes] = [ZERO_TOPIC_ID, METADATA_TOPIC_ID]

    def message(self, cls: type, version: int) -> Any:
        """A message that the version can carry; some fields keep their defaults."""
        values = {}
        for field in active_fields(cls, version):
            if self.rng.random() < 0.1:
                continue
            is_null = version in field.nullable_versions and self.rng.random() < 0.15
            values[field.name] = None if is_null else self._value(field.type, version)
        return cls(**values)

    def _value(self, wire_type: WireType, version: int) -> Any:
        kind, rng = wire_type.kind, self.rng
        if kind == "struct":
            return self.message(wire_type.struct, version)
        if kind == "array":
            return [
                self._value(wire_type.element, version) for _ in range(rng.choice((0, 1, 1, 3)))
            ]
        if "int" in kind:
            bits = int(kind.strip("uint"))
            low, high = (
                (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            )
            return max(low, min(high, rng.choice(NUMBERS)))
        return {
            "bool": lambda: rng.random() < 0.5,
            "float64": lambda: rng.choice((0.0, 1.0, 1.5, -1.0, 1e300, float("inf"), float("nan"))),
            "string": lambda: rng.choice(NAMES),
            "uuid": lambda: rng.choice([*self.ids, rng.randbytes(16)]),
            "bytes": lambda: rng.randbytes(rng.choice((0, 3, 40))),
            "records": self._records,
        }[kind]()

    def _records(self) -> bytearray:
        rng = self.rng
        made = batch(
            rng.choice((1, 2, 50)), codec=rng.choice(list(Codec)),
            producer_id=rng.choice((-1, -1, 5)), producer_epoch=rng.choice((0, 1)),
            base_sequence=rng.choice((0, 1, 2, 2**31 - 1)),
        )  # fmt: skip
        for _ in range(rng.choice((0, 0, 1, 3))):
            made[rng.randrange(len(made))] = rng.randrange(256)
        return made[: rng.randrange(len(made))] if rng.random() < 0.1 else made


def final(outcome: Any, now_ms: int) -> Any:
    """What a client gets when nothing more happens."""
    if isinstance(outcome, Cold):
        outcome = outcome.again(now_ms)
    if isinstance(outcome, Wait):
        outcome = outcome.poll(now_ms + 1, True)
        assert outcome is not None, "a wait whose time is over must answer"
    return outcome


def answerable(outcome: Any, version: int) -> None:
    """The outcome is one of the contract's, and a response fits the request's version: a client
    can read it."""
    if not isinstance(outcome, Forward | NoAnswer | Hangup):
        framed = b"".join(map(bytes, frame_response(1, outcome, version)))
        assert read_response(framed[4:], type(outcome), version)[0] == 1


def requests(maker: Maker, key: int, listener: str):
    """Requests of one API key in all its versions, as they arrive: encoded and decoded."""
    for number in range(REQUESTS_EACH):
        versions = handlers()[key].versions
        version = versions[number % len(versions)]
        cls = API_KEYS[key].request
        body = maker.message(cls, version)
        if "cluster_id" in cls.__struct_fields__ and number % 4:
            body.cluster_id = CLUSTER
        raw = bytearray(encode_bytes(body, version))
        if raw and maker.rng.random() < 0.15:
            raw[maker.rng.randrange(len(raw))] = maker.rng.randrange(256)
        try:
            decoded = decode(cls, memoryview(raw), version)
        except ProtocolError:
            continue
        yield Request(key, version, 1, "any", decoded, ANONYMOUS, listener, "127.0.0.1", 1)


@pytest.mark.parametrize("key", BROKER_KEYS)
def test_a_broker_answers_anything(key):
    maker, node = Maker(key), InMemoryNode()
    maker.ids += [node.topic("t", 3), node.topic("u", configs={"cleanup.policy": "compact"})]
    handler = handlers()[key]
    for request in requests(maker, key, "PLAINTEXT"):
        try:
            outcome = final(handler.broker(node.broker, request, node.now_ms), node.now_ms)
        except ApiError:
            continue
        answerable(outcome, request.version)


@pytest.mark.parametrize("key", CONTROLLER_KEYS)
def test_a_controller_answers_anything(key):
    maker, world = Maker(1000 + key), World(key)
    world.start(1, 2)
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in "tu"]
    maker.ids += [each.topic_id for each in world.ask(CreateTopicsRequest(topics=topics)).topics]
    handler = handlers()[key]
    for request in requests(maker, key, "CONTROLLER"):
        try:
            outcome = handler.controller(world.controller, request, world.now_ms)
            if isinstance(outcome, Propose):
                world.commit(outcome.result.records)
                outcome = outcome.result.response
            outcome = final(outcome, world.now_ms)
        except ApiError:
            continue
        if hasattr(outcome, "__struct_fields__"):
            answerable(outcome, request.version)
