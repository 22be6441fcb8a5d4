"""The stream target: what clients send over a connection to a node, in order.

    input:  size int32 | frame …     a frame is a request without its size, as on the wire
    frame:  api key int16 | …        bit 14 of the key: it came over the controller's listener
            event int16 < 0 | numbers int32 …    something that is no request, see `EVENTS`

The rule in one sentence: a frame is answered in its version, hung up on, or parked until its time,
and then answered; nothing that was appended changes or goes, whatever comes after it. A frame that
the connection would not hand on (its size is wrong) is taken as the last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from struct import Struct, error
from typing import Any

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api.handler import Handler
from anabranch.core.api.registry import handlers
from anabranch.core.errors import ApiError, ErrorCode, ProtocolError, error_code_of
from anabranch.core.log.log import Log
from anabranch.core.outcome import Forward, Hangup, NoAnswer, Wait
from anabranch.core.request import Request
from anabranch.core.step import Performer, Wish, drain
from anabranch.core.types import Loan, TopicPartition
from anabranch.core.wire.batch import crc_is_valid, walk
from anabranch.core.wire.codec import decoder
from anabranch.core.wire.frame import frame_response, read_request_header, read_response
from anabranch.core.wire.messages import API_KEYS
from fuzz import sequences
from fuzz.answers import codes_of, harvest
from fuzz.chunks import join, parts, split
from fuzz.compacting import pass_over
from fuzz.node import LISTENER, Node
from fuzz.target import AFTER, REFUSED, Features, Target
from fuzz.verdict import Broken, expect

CONTROLLER_BIT = 1 << 14
PEEK = Struct(">hhi").unpack_from
SIZE = Struct(">i")
MOST_PARKED = 100
MOST_ROUNDS = 100
MOST_DISK_BYTES = 64 << 20
"""In a disk of memory; more means that an input of some kilobytes is blown up."""
STORAGE = ErrorCode.KAFKA_STORAGE_ERROR
SAYS_UNKNOWN = frozenset((44,))
"""IncrementalAlterConfigs says so of an unknown operation, with a sentence, as Kafka does."""


class Session(Performer):
    """One connection's conversation with one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.features: Features = set()
        self.parked: list[tuple[Wait, Request, int]] = []
        self.ends: dict[int, tuple[Log, int]] = {}
        self.contents: dict[TopicPartition, bytes] = {}
        self.before = -1

    # Requests.

    def frame(self, frame: bytes) -> None:
        """What `Requests` does with a frame."""
        buffer = memoryview(bytearray(frame))
        try:
            api_key, version, correlation_id = PEEK(buffer)
        except error:
            self.features.add("short")
            return
        role = "broker"
        if api_key >= CONTROLLER_BIT:
            role, api_key = "controller", api_key - CONTROLLER_BIT
            buffer[:2] = api_key.to_bytes(2, "big")
        handler = handlers().get(api_key)
        run = None if handler is None else getattr(handler, role)
        if handler is None or run is None or version not in handler.versions:
            self.features.add(("unserved", role, api_key if handler is not None else "unknown"))
            return
        try:
            header = read_request_header(buffer)
            body, _ = decoder(API_KEYS[api_key].request, version)(buffer, header.body_offset)
        except ProtocolError as fault:
            self.features.add((REFUSED, api_key, version, fault.message_name, fault.field))
            return
        request = Request(
            api_key, version, correlation_id, header.client_id, body, ANONYMOUS, LISTENER,
            "127.0.0.1", 1,
        )  # fmt: skip
        self.features.add((AFTER, self.before, api_key))
        self.before = api_key
        self.serve(handler, run, request, role)
        self.settle()

    def serve(self, handler: Handler, run: Callable[..., Any], request: Request, role: str) -> None:
        """Run a handler and see its outcome through."""
        node = self.node
        world = node.broker if role == "broker" else node.controller
        try:
            outcome = run(world, request, node.now_ms)
            if isinstance(outcome, Forward):
                expect(role == "broker", "a controller has nobody to forward to")
                self.features.add(("forwarded", request.api_key))
                assert handler.controller is not None
                outcome = handler.controller(node.controller, request, node.now_ms)
            self.resolve(node.committed(outcome), request)
        except ApiError as fault:
            self.features.add((request.api_key, "raised", fault.code))

    def resolve(self, outcome: Any, request: Request) -> None:
        """An outcome of a handler, or of a poll."""
        if isinstance(outcome, Wait):
            expect(len(self.parked) < MOST_PARKED, "parked requests are as many as their frames")
            self.parked.append((outcome, request, self.node.broker.steady_ms))
            self.features.add((request.api_key, "parked", len(outcome.keys)))
        elif isinstance(outcome, Hangup):
            self.features.add((request.api_key, "hangup", request.version))
        elif isinstance(outcome, NoAnswer):
            self.features.add((request.api_key, "no answer"))
        else:
            self.answer(outcome, request)

    def answer(self, message: Any, request: Request) -> None:
        """An answer fits its version, and reads back as what it was."""
        spec = API_KEYS[request.api_key]
        expect(type(message) is spec.response, f"{spec.name} is answered by its response")
        pieces = frame_response(request.correlation_id, message, request.version)
        framed = b"".join(piece for piece in pieces if not isinstance(piece, Loan))
        expect(SIZE.unpack_from(framed)[0] == len(framed) - 4, "a size counts the bytes after it")
        correlation_id, again = read_response(framed[4:], spec.response, request.version)
        expect(correlation_id == request.correlation_id, "an answer names its request")
        expect(type(again) is spec.response, "an answer reads back")
        codes = codes_of(message)
        surprised = -1 in codes and request.api_key not in SAYS_UNKNOWN
        expect(not surprised, f"{spec.name} is never answered with UNKNOWN_SERVER_ERROR")
        expect(STORAGE not in codes, f"{spec.name} finds nothing wrong with a disk that is sound")
        self.features.update((request.api_key, code) for code in codes)
        self.features.add((request.api_key, request.version))
        harvest(message, request.correlation_id)

    # What follows a step.

    def settle(self) -> None:
        """Drain what the step left."""
        self.rounds = 0
        drain(self.node.broker.mailbox, self)
        self.look_at_logs()

    def wake_waiting(self, keys: Iterable[Hashable]) -> None:
        """See Performer."""
        self.rounds += 1
        expect(self.rounds < MOST_ROUNDS, "a step comes to rest")
        self.wake(set(keys))

    def take_faults(self) -> None:
        """See Performer."""
        raise Broken("a disk that is sound has no faults")

    def sync_logs(self) -> None:
        """See Performer: one round at once."""
        self.node.sync_logs(sorted(self.node.broker.unsynced))

    def load_groups(self) -> None:
        """See Performer."""
        self.node.broker.groups.load(self.node.now_ms)

    def grant(self, wish: Wish) -> None:
        """See Performer."""
        self.node.grant(wish)

    def wake(self, changed: set[Hashable]) -> None:
        """Poll those parked under a key."""
        waiting, self.parked = self.parked, []
        for entry in waiting:
            wait, request, _ = entry
            if changed.isdisjoint(wait.keys):
                self.parked.append(entry)
                continue
            outcome = self.polled(wait, request, expired=False)
            if outcome is None:
                self.parked.append(entry)
            else:
                self.resolve(outcome, request)

    def expire(self, *, everybody: bool) -> None:
        """Answer those whose time has come."""
        waiting, self.parked = self.parked, []
        for wait, request, since in waiting:
            if everybody or wait.deadline_ms <= self.node.now_ms:
                outcome = self.polled(wait, request, expired=True)
                expect(outcome is not None, "a wait whose time is over answers")
                self.resolve(outcome, request)
            else:
                self.parked.append((wait, request, since))

    def polled(self, wait: Wait, request: Request, *, expired: bool) -> Any:
        """What a poll says; an error that it raises is an answer."""
        try:
            return wait.poll(self.node.now_ms, expired)
        except ApiError as fault:
            self.features.add((request.api_key, "poll raised", error_code_of(fault)))
            return NoAnswer()

    def look_at_logs(self) -> None:
        """Offsets only grow, and the high watermark is within the log."""
        for replica in self.node.broker.partitions:
            log = replica.log
            end = log.end_offset
            known = self.ends.get(id(log))
            if known is not None:
                expect(end >= known[1], f"the end of {log.topic_partition} never goes back")
            if end:
                self.ends[id(log)] = (log, end)
                expect(log.fault is None, f"{log.topic_partition} stays online")
            expect(log.start_offset <= end, "a log starts before it ends")
            expect(replica.high_watermark <= end, "the high watermark is within the log")
            expect(log.flushed_offset <= end, "what is flushed is within the log")

    # At the end.

    def read_back(self) -> dict[TopicPartition, bytes]:
        """Every partition's bytes; batches follow each other and are sound."""
        held = {}
        for replica in self.node.broker.partitions:
            log = replica.log
            if log.end_offset == log.start_offset:
                continue
            parts, offset = [], log.start_offset
            while offset < log.end_offset:
                read = memoryview(
                    log.read(offset, max_bytes=1 << 20, upto=log.end_offset, at_least_one=True)
                )
                expect(len(read) > 0, f"{log.topic_partition} has something at {offset}")
                for position, header in walk(read):
                    expect(header.last_offset >= offset, "a read begins at the batch of its offset")
                    expect(crc_is_valid(read, position, header.size_bytes), "what is read is sound")
                    offset = header.next_offset
                parts.append(bytes(read))
            held[log.topic_partition] = b"".join(parts)
        return held

    def finish(self) -> None:
        """Let everybody's time run out, and read back what was written."""
        while self.parked:
            self.expire(everybody=True)
            self.settle()
        if self.ends:
            self.read_back()
            used = sum(map(len, self.node.files.contents.values()))
            expect(used < MOST_DISK_BYTES, "an input of kilobytes fills no disk")

    def event(self, frame: bytes) -> None:
        """Something that is no request."""
        number = -int.from_bytes(frame[:2], "big", signed=True) % len(sequences.EVENTS)
        numbers = [int.from_bytes(frame[at : at + 4], "big") for at in range(2, len(frame) - 3, 4)]
        name = sequences.EVENTS[number]
        self.features.add(name)
        getattr(self, "do_" + name)(*(numbers + [0, 0, 0])[:3])
        self.settle()

    def do_time(self, milliseconds: int, *_: int) -> None:
        """Time passes, a day at most."""
        self.node.pass_time(milliseconds % 86_400_000)
        self.settle()
        self.expire(everybody=False)

    def do_sync(self, *_: int) -> None:
        """Every log is synced."""
        self.node.sync_logs([each.topic_partition for each in self.node.broker.partitions])

    def do_crash(self, *_: int) -> None:
        """The process dies, the disk stays: what was there is there."""
        self._restart(clean=False)

    def do_stop(self, *_: int) -> None:
        """The process stops in order and starts again."""
        self._restart(clean=True)

    def _restart(self, *, clean: bool) -> None:
        before = self.read_back()
        self.parked.clear()
        self.ends.clear()
        self.node.restart(clean=clean)
        after = self.read_back()
        for place, held in before.items():  # a log start that was not checkpointed goes back
            expect(after.get(place, b"").endswith(held), "a restart keeps every byte")

    def do_compact(self, *_: int) -> None:
        """The cleaner passes over every log that is compacted."""
        node = self.node
        for replica in node.broker.partitions:
            if replica.log.config.compacted:
                point = node.clean_points.get(replica.topic_partition, 0)
                upto = pass_over(
                    replica.log, now_ms=node.now_ms, high_watermark=replica.high_watermark,
                    clean_point=point,
                )  # fmt: skip
                if upto is not None:
                    node.clean_points[replica.topic_partition] = upto
                    self.features.add("compacted")

    def do_metadata(self, which: int, leader: int, isr: int) -> None:
        """The controller moves a partition's leadership or ISR."""
        self.node.change_partition(which, leader, isr)


RECENT: list[Node] = []


def run(entry: bytes) -> Features:
    """Send the frames of an input to a node, and let it end."""
    node = RECENT.pop().renewed() if RECENT else Node.fresh()  # none is left by one that failed
    session = Session(node)
    for frame in split(entry):
        if len(frame) >= 2 and frame[0] & 0x80:
            session.event(frame)
        else:
            session.frame(frame)
    session.finish()
    RECENT.append(node)
    return session.features


TARGET = Target(
    name="stream",
    run=run,
    make=lambda rng: join(sequences.make(rng)),
    change=lambda rng, entry, other: join(sequences.change(rng, split(entry), split(other))),
    share=80,
    steps=lambda entry: len(split(entry)),
    parts=parts,
)
