"""R15: a node that stops or is killed under its groups: offsets stay, members go on."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewTopic
from tests.clients.adapters import SECONDS, Confluent, Sent
from tests.clients.member_clients import MEMBERS, ConfluentMember
from tests.clients.members import of, share, until

RESTARTS = pytest.mark.parametrize(
    ("kind", "how"),
    [(kind, "kill") for kind in MEMBERS] + [(ConfluentMember, "stop")],
    ids=[f"kill-{kind.name}" for kind in MEMBERS] + ["stop"],
)


@pytest.mark.slow
@RESTARTS
def test_members_go_on_after_a_restart(kind, start, join, group, how):
    node = start()
    produce = Confluent(node.bootstrap).produce
    node.admin.create_topics([NewTopic("t", 4, 1)])["t"].result(SECONDS)
    members = [join(kind, "t", at=node, wired=False, session_ms=30_000) for _ in range(2)]
    share(members, of("t", 4))
    for number in range(4):
        produce("t", [Sent(None, b"%d" % each) for each in range(10)], partition=number)
    for member in members:
        member.values(20)
        member.commit()
    events = [len(member.events) for member in members]
    getattr(node, how)()
    node.start()
    for number in range(4):
        produce("t", [Sent(None, b"after")], partition=number)
    until(lambda: all(len(each.records) >= 22 for each in members), "the records after it")
    assert [[each.value for each in member.records[20:]] for member in members] == [
        [b"after"] * 2
    ] * 2
    for member in members:
        member.commit()
    node.settled(group, 2)
    assert [len(member.events) for member in members] == events
    assert members[0].committed(*of("t", 4)) == dict.fromkeys(of("t", 4), (11, ""))


@pytest.mark.slow
@RESTARTS
def test_offsets_and_groups_are_there_after_a_restart(kind, start, join, group, how):
    node = start()
    Confluent(node.bootstrap).produce("t", [Sent(None, b"%d" % each) for each in range(10)])
    member = join(kind, "t", at=node, wired=False)
    member.values(10)
    for offset in range(1, 8):
        member.commit({("t", 0): (offset, f"word {offset}")})
    member.leave()
    getattr(node, how)()
    node.start()
    until(lambda: node.state(group) == ("EMPTY", 0), "the group")
    again = join(kind, "t", at=node, wired=False)
    assert again.values(3) == [b"7", b"8", b"9"]
    assert again.committed(("t", 0)) == {("t", 0): (7, "word 7")}


def test_a_deleted_group_stays_deleted(start, join, group):
    node = start()
    Confluent(node.bootstrap).produce("t", [Sent(None, b"x")])
    member = join(ConfluentMember, "t", at=node, wired=False)
    member.values(1)
    member.commit()
    member.leave()
    node.admin.delete_consumer_groups([group])[group].result(SECONDS)
    node.kill()
    node.start()
    assert join(ConfluentMember, "t", at=node, wired=False).values(1) == [b"x"]
