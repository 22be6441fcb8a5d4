"""Requests and answers in the simulated world.

What: a call brings a message over the network to a node, has the handler of `core.api` look at it
as a real node does, and brings the answer back. For speed the message objects themselves
are passed, with the bytes of records copied as a socket would; in a world with `wire` set they are
encoded and decoded for real. A call ends once: with an answer, or with None when its time is over,
nobody listens, or the process that it was with has died.

Rule kept: whoever asks knows nothing of the other side but what arrives. Each call is its own:
unlike on a real connection, an answer does not wait for the answers before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.api.registry import handlers
from anabranch.core.types import CLUSTER_METADATA_TOPIC
from anabranch.core.wire.codec import decode, encode_bytes
from anabranch.core.wire.messages.fetch import FetchResponse
from anabranch.core.wire.messages.produce import ProduceRequest
from anabranch.sim.network import Network
from anabranch.sim.processes import Process, State
from anabranch.sim.world import World

BROKER, CONTROLLER, ENVELOPE = "broker", "controller", "envelope"
"""The listener that a call goes to; in an envelope a broker passes a client's request on to that of
controllers."""

OnAnswer: TypeAlias = Callable[[Any], None]


class Server(Process, ABC):
    """A process that can be called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.controller_name = f"{name}/controller"
        """The place of its controller listener: links to it can fail apart from the others."""
        self.open_calls: dict[Call, None] = {}

    @abstractmethod
    def receive(self, call: Call) -> None:
        """A request has arrived; `call.answer` must be called once, or never."""


class Call:
    """One request on its way, being answered, or over."""

    __slots__ = (
        "_calls",
        "_on_answer",
        "api_key",
        "body",
        "client_id",
        "is_over",
        "life",
        "listener",
        "message",
        "place",
        "principal",
        "source",
        "target",
        "version",
    )

    def __init__(
        self,
        calls: Calls,
        source: Process,
        target: Server,
        listener: str,
        message: Any,
        version: int,
        client_id: str,
        principal: Principal,
        on_answer: OnAnswer,
    ) -> None:
        self._calls = calls
        self._on_answer = on_answer
        self.source = source
        self.target = target
        self.listener = listener
        self.place = target.name if listener == BROKER else target.controller_name
        self.message = message
        self.body: Any = None
        self.api_key: int = type(message).api_key
        self.version = version
        self.client_id = client_id
        self.principal = principal
        self.life = source.life
        self.is_over = False

    def arrive(self) -> None:
        """The message is there: an event of the target."""
        state = self.target.state
        if state is State.CRASHED:
            self.lose()
        elif state is not State.POWERED_OFF:
            self.body = received(self.message, self.version, wire=self._calls.world.wire)
            self.target.open_calls[self] = None
            self.target.receive(self)

    def answer(self, response: Any) -> None:
        """Send the answer back; None closes the connection."""
        if self.target.open_calls.pop(self, self) is self:
            return  # a doubled request: the first answer counts
        self._back(response)

    def lose(self) -> None:
        """The connection breaks: whoever asked hears that, if anything."""
        self.target.open_calls.pop(self, None)
        self._back(None)

    def _back(self, response: Any) -> None:
        calls = self._calls
        if response is not None:
            response = answered(response, self.version, wire=calls.world.wire)
        calls.network.send(self.place, self.source.name, self.source, self.end, response)

    def end(self, response: Any) -> None:
        """The answer is there, or nothing will come: an event of whoever asked."""
        if self.is_over or self.source.life != self.life:
            return
        self.is_over = True
        self._on_answer(response)

    def start(self, timeout_us: int) -> None:
        """Send the request and begin to wait."""
        calls = self._calls
        calls.expect(self, timeout_us)
        calls.network.send(self.source.name, self.place, self.target, self.arrive)


class Calls:
    """Makes calls over a network."""

    def __init__(self, world: World, network: Network) -> None:
        self.world = world
        self.network = network
        self._waiting: dict[int, deque[tuple[int, Call]]] = {}
        self.newest = {key: handler.versions[-1] for key, handler in handlers().items()}

    def call(
        self,
        source: Process,
        target: Server,
        listener: str,
        message: Any,
        on_answer: OnAnswer,
        *,
        timeout_us: int,
        version: int | None = None,
        most_version: int | None = None,
        client_id: str = "",
        principal: Principal = ANONYMOUS,
    ) -> Call:
        """Ask; `on_answer` is called with the answer, or with None when there is none.

        `version` is the one to speak; without it the newest that both sides speak, and at most
        `most_version`. `principal` is in whose name it asks."""
        if version is None:
            version = self.version(source, target, type(message).api_key)
            version = version if most_version is None else min(version, most_version)
        call = Call(
            self, source, target, listener, message, version, client_id or source.name, principal,
            on_answer,
        )  # fmt: skip
        call.start(timeout_us)
        return call

    # Calls with the same patience lose it in the order in which they were made: one timer for each
    # patience serves them all, and most are answered long before it rings.

    def expect(self, call: Call, timeout_us: int) -> None:
        """End a call without an answer when so much time has gone by."""
        waiting = self._waiting.get(timeout_us)
        if waiting is None:
            waiting = self._waiting[timeout_us] = deque()
        if not waiting:
            self.world.after(timeout_us, self._expire, timeout_us)
        waiting.append((self.world.now_us + timeout_us, call))

    def _expire(self, timeout_us: int) -> None:
        waiting, now_us = self._waiting[timeout_us], self.world.now_us
        while waiting and (waiting[0][1].is_over or waiting[0][0] <= now_us):
            call = waiting.popleft()[1]
            if not call.is_over:
                self.world.after_in(call.source, 0, call.end, None)
        if waiting:
            self.world.after(waiting[0][0] - now_us, self._expire, timeout_us)

    def version(self, source: Process, target: Server, api_key: int) -> int:
        """The newest version that both sides speak."""
        newest = self.newest[api_key]
        if source.newest or target.newest:
            for side in (source.newest, target.newest):
                newest = min(newest, side.get(api_key, newest))
        return newest


def received(message: Any, version: int, *, wire: bool) -> Any:
    """A request as its receiver sees it: records are its own to change."""
    if wire:
        frame = bytearray(encode_bytes(message, version))
        return decode(type(message), frame, version)
    if type(message) is ProduceRequest:
        topics = []
        for topic in message.topic_data:
            own = [
                type(data)(
                    index=data.index,
                    records=None if data.records is None else bytearray(data.records),
                )
                for data in topic.partition_data
            ]
            topics.append(type(topic)(name=topic.name, topic_id=topic.topic_id, partition_data=own))
        return ProduceRequest(
            transactional_id=message.transactional_id,
            acks=message.acks,
            timeout_ms=message.timeout_ms,
            topic_data=topics,
        )
    return message


def answered(response: Any, version: int, *, wire: bool) -> Any:
    """An answer as whoever asked sees it."""
    cls = type(response)
    if wire:
        return decode(cls, bytearray(encode_bytes(response, version)), version)
    if cls is FetchResponse:
        for topic in response.responses:
            for partition in topic.partitions:
                records = partition.records
                if records and topic.topic != CLUSTER_METADATA_TOPIC:
                    partition.records = (
                        bytearray().join(records)
                        if isinstance(records, (list, tuple))
                        else bytearray(records)
                    )
    return response
