"""R15: what is committed is what is found again: sync, async, automatic, with words beside it."""

from __future__ import annotations

import pytest
from tests.clients.adapters import Refused, Sent
from tests.clients.members import LEFT_BEHIND, until

OFFSET_METADATA_TOO_LARGE = 12
SENT = [Sent(None, b"%d" % number, (), 1000 + 10 * number) for number in range(100)]
VALUES = [each.value for each in SENT]


@pytest.fixture
def filled(new_topic, produce):
    """A topic with a hundred records, 10 ms apart."""
    topic = new_topic(1, message_timestamp_type="CreateTime")
    produce(topic, SENT)
    return topic


def test_a_commit_that_waits_is_there_for_the_next_member(kind, join, filled):
    first = join(kind, filled)
    assert first.values(100) == VALUES
    assert first.committed((filled, 0)) == {(filled, 0): None}
    first.commit({(filled, 0): (42, "")})
    assert first.committed((filled, 0)) == {(filled, 0): (42, "")}
    first.leave()
    assert join(kind, filled).values(58) == VALUES[42:]


def test_a_commit_that_does_not_wait_is_there_soon(kind, join, filled):
    member = join(kind, filled)
    member.values(100)
    for offset in (10, 20, 30):
        member.commit({(filled, 0): (offset, "")}, wait=False)
    until(lambda: member.committed((filled, 0)) == {(filled, 0): (30, "")}, "the last commit")


def test_words_beside_a_commit_come_back(kind, join, filled):
    member = join(kind, filled)
    member.values(100)
    member.commit({(filled, 0): (7, "seven, Käse")})
    assert member.committed((filled, 0)) == {(filled, 0): (7, "seven, Käse")}
    with pytest.raises(Refused) as refused:
        member.commit({(filled, 0): (8, "x" * 4097)})
    assert refused.value.code == OFFSET_METADATA_TOO_LARGE
    assert member.committed((filled, 0)) == {(filled, 0): (7, "seven, Käse")}


def test_automatic_commits(kind, join, filled):
    first = join(kind, filled, auto_commit_ms=50)
    first.values(100)
    until(lambda: first.committed((filled, 0)) == {(filled, 0): (100, "")}, "a commit by itself")


def test_an_automatic_commit_when_the_member_leaves(kind, join, filled, produce):
    first = join(kind, filled, auto_commit_ms=60_000)
    first.values(100)
    first.leave()
    produce(filled, [Sent(None, b"new")])
    assert join(kind, filled).values(1)[:1] == [b"new"]


def test_where_a_group_without_commits_begins(kind, join, filled, produce):
    assert join(kind, filled, reset="earliest").values(100) == VALUES


def test_a_group_without_commits_begins_at_the_end_when_told(kind, join, filled, produce):
    member = join(kind, filled, reset="latest")
    member.owns(1)

    def seen():
        produce(filled, [Sent(None, b"new")])
        return member.records

    until(seen, "a record")
    assert {each.value for each in member.records} == {b"new"}


def test_a_commit_beyond_the_log_begins_as_one_that_is_not_there(kind, join, filled):
    first = join(kind, filled)
    first.values(100)
    first.commit({(filled, 0): (1000, "")})
    first.leave()
    assert join(kind, filled).values(100) == VALUES


def test_members_by_assignment_commit_without_a_group(kind, node, join, group, filled):
    first = join(kind, filled, assign=[(filled, 0)])
    first.values(100)
    first.commit({(filled, 0): (30, "")})
    assert node.state(group) == ("EMPTY", 0)
    first.leave()
    assert join(kind, filled, assign=[(filled, 0)]).values(70) == VALUES[30:]


def test_pause_and_resume(kind, join, new_topic, produce):
    topic = new_topic(2)
    member = join(kind, topic)
    member.owns(2)
    member.pause((topic, 0))
    for number in range(2):
        produce(topic, [Sent(None, b"%d" % number)], partition=number)
    assert member.values(1) == [b"1"]
    produce(topic, [Sent(None, b"1 again")], partition=1)
    assert member.values(2) == [b"1", b"1 again"]
    member.resume((topic, 0))
    assert member.values(3)[2] == b"0"


def test_seeking_by_offset_and_by_time_in_a_group(kind, join, filled):
    member = join(kind, filled)
    member.values(100)
    assert member.at_time((filled, 0), 1490) == 49
    assert member.at_time((filled, 0), 1491) == 50
    assert member.at_time((filled, 0), 1991) is None
    member.seek((filled, 0), member.at_time((filled, 0), 1900))
    assert member.values(110)[100:] == VALUES[90:]
    member.seek((filled, 0), 0)
    assert member.values(210)[110:] == VALUES


def test_lag(kind, join, filled, produce):
    member = join(kind, filled)
    member.values(100)
    assert member.lag((filled, 0)) == 0
    member.pause((filled, 0))
    produce(filled, SENT[:5])
    assert member.lag((filled, 0)) == 5


def test_a_zombies_commit_is_refused(kind, node, join, filled):
    """A member that hung beyond its session finds its commit refused, and the group unharmed."""
    zombie = join(kind, filled, session_ms=500)
    zombie.values(100)
    node.wire.hold(zombie.client_id)
    late = zombie.ask("do_commit", {(filled, 0): (13, "zombie")}, True)
    heir = join(kind, filled)
    heir.values(100)
    heir.commit({(filled, 0): (77, "heir")})
    node.wire.release(zombie.client_id)
    with pytest.raises(Refused) as refused:
        late.result(20)
    assert refused.value.code in LEFT_BEHIND
    assert heir.committed((filled, 0)) == {(filled, 0): (77, "heir")}
    zombie.leave()
    zombie.faults.clear()
