"""Group members behind one interface: the same test joins, crashes and commits with three clients.

A member polls in a thread of its own, as an application does, and keeps what it saw: `records`,
`events` (rebalance callbacks, in order) and `owned`. Every call on its consumer runs between two
polls. Rule kept: partitions are (topic, number), offsets are {partition: (offset, metadata)}, and a
client's error is Refused with Kafka's number, whatever the library.
"""

from __future__ import annotations

import queue
import threading
import time
from asyncio import CancelledError
from concurrent.futures import Future
from typing import NamedTuple

from tests.clients.adapters import SECONDS, Refused

POLL_SECONDS = 0.02
LONGEST_SECONDS = 60
"""Until something is given up that is only waited for: the machine may have much else to do."""
COMMIT_FAILED = -1000
"""A client that says only that its commit failed, because the group has gone on without it."""
NO_CONNECTION = -1001
"""A client that says that the node is not there, rather than trying again by itself."""
LEFT_BEHIND = {22, 25, 27, 82, COMMIT_FAILED}
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID."""


def until(condition, what="the condition", seconds=LONGEST_SECONDS):
    """Wait until `condition()` is true; returns what it gave."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not come true within {seconds} s"
        time.sleep(0.005)
    return found


def of(topic, count):
    """The first partitions of a topic."""
    return [(topic, number) for number in range(count)]


def share(members, partitions):
    """Wait until the members own every partition, each once, in equal shares."""

    def shared():
        sizes = [len(member.owned) for member in members]
        owned = sorted(each for member in members for each in member.owned)
        return owned == sorted(partitions) and max(sizes) - min(sizes) <= 1

    until(shared, f"equal shares for {[member.client_id for member in members]}")


class Read(NamedTuple):
    """A record that a member saw, with the generation it was in."""

    partition: tuple[str, int]
    offset: int
    value: bytes


class Event(NamedTuple):
    """A rebalance callback: `assigned`, `revoked` or `lost`."""

    kind: str
    partitions: frozenset
    generation: int
    at: float


class Member:
    """A consumer in a group. Subclasses put one client library behind the verbs below."""

    name = ""
    strategies = ()
    counter = iter(range(1_000_000))

    def __init__(self, bootstrap, group, *topics, wire=None, watcher=None, **options):
        self.bootstrap = bootstrap
        self.group = group
        self.topics = list(topics)
        self.wire = wire
        self.watcher = watcher
        self.client_id = f"{group}-{next(Member.counter)}"
        self.options = {
            "strategy": ("range",), "instance": None, "session_ms": 10_000, "heartbeat_ms": 50,
            "auto_commit_ms": None, "reset": "earliest", "pattern": None, "max_poll_ms": 30_000,
            "commit_each": False, "assign": (), **options,
        }  # fmt: skip
        self.records = []
        self.events = []
        self.faults = []
        self.next = {}
        self.owned = frozenset()
        self.stalled = False
        self.consumer = None
        self._calls = queue.SimpleQueue()
        self._ending = None
        self._saved = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    # What tests call.

    def start(self):
        self._thread.start()
        return self

    def owns(self, count):
        """Wait until the member owns so many partitions; returns them."""
        until(lambda: len(self.owned) == count, f"{self.client_id} with {count} partitions")
        return self.owned

    def values(self, count):
        """Wait until so many records came; returns their values in the order of coming."""
        until(lambda: len(self.records) >= count, f"{count} records for {self.client_id}")
        return [each.value for each in self.records]

    def ask(self, verb, *arguments):
        """Begin a call of a verb below between two polls; returns a future."""
        answer = Future()
        self._calls.put((verb, arguments, answer))
        return answer

    def commit(self, offsets=None, wait=True):
        """Commit {partition: (offset, metadata)}, or all that was read; Refused when it fails."""
        return self.ask("do_commit", offsets or self.read_so_far(), wait).result(SECONDS)

    def committed(self, *partitions):
        """{partition: (offset, metadata)}, None for those without a commit."""
        return self.ask("do_committed", partitions).result(SECONDS)

    def pause(self, *partitions):
        self.ask("do_pause", partitions).result(SECONDS)

    def resume(self, *partitions):
        self.ask("do_resume", partitions).result(SECONDS)

    def seek(self, partition, offset):
        self.ask("do_seek", partition, offset).result(SECONDS)

    def at_time(self, partition, timestamp):
        """First offset at or after the time; None when there is none."""
        return self.ask("do_at_time", partition, timestamp).result(SECONDS)

    def lag(self, partition):
        """Records between the member's position and the end of the partition."""
        return self.ask("do_lag", partition).result(SECONDS)

    def read_so_far(self):
        return {partition: (offset, "") for partition, offset in self.next.items()}

    def stall(self):
        """Poll no more, as an application that works on a record for too long."""
        self.stalled = True

    def go_on(self):
        self.stalled = False

    def leave(self):
        """Close the consumer in order; one that has crashed stays as it is."""
        if self._thread.is_alive() and self._ending is None:
            self._ending = "leave"
            self._thread.join(SECONDS)
            assert not self._thread.is_alive(), f"{self.client_id} did not end"

    def crash(self):
        """Die for the group: the connections are cut, then the client is thrown away."""
        self.wire.cut(self.client_id)
        self._ending = "crash"

    # What the thread does.

    def _run(self):
        try:
            self.open()
            while self._ending is None:
                self._answer_calls()
                if self.stalled:
                    self.rest()
                    continue
                self.poll()
                if self.options["commit_each"]:
                    self._commit_read()
        except (Exception, CancelledError) as fault:
            if self._ending != "crash":
                self.faults.append(fault)
        finally:
            self._answer_calls(closed=True)
            self.close(crashed=self._ending == "crash")
            self.changed("lost", self.owned)

    def _answer_calls(self, closed=False):
        while not self._calls.empty():
            verb, arguments, answer = self._calls.get()
            try:
                if closed:
                    raise Refused(-1, f"the consumer has ended: {self.faults}")
                answer.set_result(getattr(self, verb)(*arguments))
            except Exception as fault:
                answer.set_exception(fault)

    def took(self, topic, number, offset, value):
        """A record came."""
        partition = (topic, number)
        read = Read(partition, offset, value)
        self.records.append(read)
        self.next[partition] = offset + 1
        if self.watcher is not None:
            self.watcher.read(self, read)

    def changed(self, kind, partitions):
        """A rebalance callback came; some libraries also tell of no partitions."""
        partitions = frozenset(partitions)
        if not partitions:
            return
        if kind == "assigned":
            self.owned |= partitions
        else:
            self.owned -= partitions
            self.next = {each: at for each, at in self.next.items() if each not in partitions}
        event = Event(kind, partitions, self.generation(), time.monotonic())
        self.events.append(event)
        if self.watcher is not None:
            self.watcher.changed(self, event)

    def generation(self):
        """The generation of the last JoinGroup that was answered, when the wire is ours."""
        return self.wire.generations.get(self.client_id, -1) if self.wire else -1

    def rest(self):
        """What an application does that does not poll."""
        time.sleep(POLL_SECONDS)

    def _commit_read(self):
        """Commit what was read; what the group refuses, because it goes on, is tried again."""
        offsets = self.read_so_far()
        if not offsets or offsets == self._saved:
            return
        try:
            self.do_commit(offsets, True)
            self._saved = offsets
        except Refused as refused:
            if refused.code not in LEFT_BEHIND | {NO_CONNECTION}:
                raise
