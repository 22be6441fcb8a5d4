"""R15: twenty members of three libraries come, go and crash while records flow."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.clients.groups.churn import Book, Churn, Flow
from tests.clients.member_clients import MEMBERS, ConfluentMember, PythonMember
from tests.clients.members import Event, Member, Read, of, until

PARTITIONS = 24
MEMBERS_AT_ONCE = 20
STEPS = 10
GROUPS = [
    pytest.param(MEMBERS, ("roundrobin",), id="all-libraries"),
    pytest.param((ConfluentMember, PythonMember), ("cooperative-sticky",), id="cooperative"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "strategy"), GROUPS)
def test_twenty_members_churn_and_nothing_is_lost_or_owned_twice(
    node, join, group, new_topic, kinds, strategy
):
    topic = new_topic(PARTITIONS)
    flow = Flow(node.bootstrap, topic, PARTITIONS).start()
    churn = Churn(join, kinds, topic, seed=20, size=MEMBERS_AT_ONCE, strategy=strategy)
    churn.fill()
    churn.read_on(200)
    for _ in range(STEPS):
        churn.step()
        churn.read_on(200)
    flow.stop()
    until(lambda: not churn.book.missing(flow), "every record read")
    ends = {(topic, number): (len(flow.written[number]), "") for number in range(PARTITIONS)}
    watcher = churn.members[-1]
    until(lambda: watcher.committed(*of(topic, PARTITIONS)) == ends, "everything committed")
    assert churn.book.faults == []
    assert churn.book.owned_twice(node.wire) == []
    for member in churn.members:
        member.leave()
    until(lambda: node.state(group) == ("EMPTY", 0), "an empty group")


def test_the_book_finds_what_is_wrong():
    """Two owners in one generation, a gap and a record nobody read are found; a crash is not."""
    wire = SimpleNamespace(put_out={})
    first, second = (Member("", name, None) for name in ("first", "second"))
    both = frozenset({("t", 0)})
    book = Book()
    book.changed(first, Event("assigned", both, 1, 10.0))
    book.read(first, Read(("t", 0), 0, b"0"))
    book.read(first, Read(("t", 0), 2, b"2"))
    book.changed(second, Event("assigned", both, 2, 11.0))
    assert len(book.faults) == 1
    assert len(book.owned_twice(wire)) == 1
    flow = SimpleNamespace(topic="t", written={0: {0: b"0", 1: b"1", 2: b"2"}})
    assert book.missing(flow) == [(0, 1)]
    book.crashed(first)
    assert book.owned_twice(wire) == []
    book.windows["t", 0][1].generation = 1
    assert len(book.owned_twice(wire)) == 1
