"""What a plain produce request costs in calls, and that it calls no machine that is idle.

A count, not a time: it is the same on every machine. Calls of what is generated from the schema
count; those of the standard library and of C do not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from node_kit import ThreadNode

import anabranch
from anabranch.server.connection import Connection

PACKAGE = str(Path(anabranch.__file__).parent) + "/"
MOST_FILES, MOST_CALLS = 30, 70
OF_A_SLOW_MACHINE = {
    "core/node/turns.py: learn",  # a slice was long
    "server/turns.py: LoopTurns.go_on",  # a turn was
}
WARM_UP = 20
IDLE = (
    "core/api/acks.py",
    "core/api/fetch_sessions.py",
    "core/api/purgatory.py",
    "core/broker/peers.py",
    "core/coordination/",
    "core/diskless/",
    "core/groups/",
    "core/due.py",
    "core/node/outcomes.py",
    "core/replication/controller_requests.py",
    "core/replication/replication.py",
    "server/diskless/",
    "server/groups.py",
    "server/peers.py",
    "server/replication.py",
)
"""Machines, and what acts for them, that want nothing of a node where nobody waits."""


class Counted:
    """The calls of each event of a connection while `is_on`."""

    def __init__(self, monkeypatch):
        self.is_on = False
        self.events = []
        real = Connection.buffer_updated

        def counted(connection, size):
            if not self.is_on:
                real(connection, size)
                return
            self.events.append([])
            sys.setprofile(self.note)
            try:
                real(connection, size)
            finally:
                sys.setprofile(None)

        monkeypatch.setattr(Connection, "buffer_updated", counted)

    def note(self, frame, event, _argument):
        path = frame.f_code.co_filename
        if event == "call" and (path.startswith((PACKAGE, "<decode", "<encode"))):
            name = f"{path.removeprefix(PACKAGE)}: {frame.f_code.co_qualname}"
            if name not in OF_A_SLOW_MACHINE:
                self.events[-1].append(name)


@pytest.mark.parametrize("acks", ["1", "all"])
def test_a_plain_produce_makes_few_calls_and_none_of_what_is_idle(tmp_path, monkeypatch, acks):
    counted = Counted(monkeypatch)
    node = ThreadNode(tmp_path).start()
    try:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result()
        producer = Producer({"bootstrap.servers": node.bootstrap, "acks": acks, "linger.ms": 0})
        for number in range(WARM_UP + 1):
            counted.is_on = number == WARM_UP
            producer.produce("t", b"x" * 100)
            assert not producer.flush(20)
    finally:
        node.stop()
    produces = [calls for calls in counted.events if any("p00_produce.py" in c for c in calls)]
    assert produces
    for calls in produces:
        files = {each.partition(":")[0] for each in calls if not each.startswith("<")}
        shown = "\n".join(calls)
        assert len(calls) <= MOST_CALLS, f"{len(calls)} calls\n{shown}"
        assert len(files) <= MOST_FILES, f"{len(files)} files\n{shown}"
        assert not [each for each in calls if each.startswith(IDLE)], shown
