"""R15: members join, leave, crash and stall, and the group shares its partitions out again."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka.admin import NewTopic
from tests.clients.adapters import SECONDS, Sent
from tests.clients.member_clients import MEMBERS, ConfluentMember
from tests.clients.members import of, share, until

GROUP_MAX_SIZE_REACHED = 81
INCONSISTENT_GROUP_PROTOCOL = 23


def test_joins_and_leaves(kind, join, new_topic):
    topic = new_topic(4)
    first = join(kind, topic)
    first.owns(4)
    second = join(kind, topic)
    share([first, second], of(topic, 4))
    second.leave()
    first.owns(4)
    assert [each.kind for each in first.events[-4:]] == ["revoked", "assigned"] * 2


def test_members_of_three_libraries_share_a_group(join, new_topic, produce):
    topic = new_topic(6)
    members = [join(kind, topic, strategy=("roundrobin",)) for kind in MEMBERS]
    share(members, of(topic, 6))
    for number in range(6):
        produce(topic, [Sent(None, b"%d" % number)], partition=number)
    until(lambda: sum(len(member.records) for member in members) == 6, "all records")
    assert {each.value for member in members for each in member.records} == {
        b"%d" % number for number in range(6)
    }
    members[0].leave()
    share(members[1:], of(topic, 6))


def test_a_member_whose_connections_end_is_missed_after_its_session(kind, join, new_topic, produce):
    topic = new_topic(2)
    stays = join(kind, topic, session_ms=400)
    goes = join(kind, topic, session_ms=400)
    share([stays, goes], of(topic, 2))
    goes.crash()
    stays.owns(2)
    for number in range(2):
        produce(topic, [Sent(None, b"%d" % number)], partition=number)
    until(lambda: {each.value for each in stays.records} == {b"0", b"1"}, "both records")


MEMBER_PROCESS = """
import sys
from tests.clients import member_clients
kind, bootstrap, group, topic = sys.argv[1:]
member = getattr(member_clients, kind)(bootstrap, group, topic, session_ms=400).start()
print(len(member.owns(1)), flush=True)
sys.stdin.read()
"""


def test_a_killed_process_is_missed_after_its_session(kind, node, join, group, new_topic):
    topic = new_topic(2)
    stays = join(kind, topic, session_ms=400)
    stays.owns(2)
    words = [sys.executable, "-c", MEMBER_PROCESS, kind.__name__, node.bootstrap, group, topic]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"1\n"
        stays.owns(1)
        process.kill()
        stays.owns(2)


def test_a_stalled_application_leaves_and_comes_back(kind, join, new_topic):
    topic = new_topic(2)
    slow = join(kind, topic, session_ms=400, max_poll_ms=500)
    other = join(kind, topic, session_ms=400)
    share([slow, other], of(topic, 2))
    slow.stall()
    other.owns(2)
    slow.go_on()
    share([slow, other], of(topic, 2))
    slow.leave()
    slow.faults.clear()


def test_a_full_group_takes_nobody_in(start, join, group):
    small = start(**{"group.max.size": "2"})
    small.admin.create_topics([NewTopic("t", 2, 1)])["t"].result(SECONDS)
    members = [join(ConfluentMember, "t", at=small) for _ in range(2)]
    small.settled(group, 2)
    third = join(ConfluentMember, "t", at=small)
    until(lambda: third.faults, "a refusal")
    assert {each.code for each in third.faults} == {GROUP_MAX_SIZE_REACHED}
    assert small.state(group) == ("STABLE", 2)
    members[0].leave()
    small.settled(group, 2)
    third.leave()
    third.faults.clear()


@pytest.mark.parametrize("strategies", [("range", "roundrobin"), ("roundrobin", "range")])
def test_the_group_takes_a_strategy_that_all_have(kind, node, join, group, new_topic, strategies):
    topic = new_topic(2)
    members = [join(kind, topic, strategy=strategies)]
    members[0].owns(2)
    assert node.describe(group).partition_assignor == strategies[0]
    members.append(join(kind, topic, strategy=strategies[1:]))
    share(members, of(topic, 2))
    assert node.describe(group).partition_assignor == strategies[1]


def test_a_member_without_a_strategy_in_common_is_refused(node, join, group, new_topic):
    topic = new_topic(2)
    first = join(ConfluentMember, topic, strategy=("range",))
    first.owns(2)
    other = join(ConfluentMember, topic, strategy=("roundrobin",))
    until(lambda: other.faults, "a refusal")
    assert {each.code for each in other.faults} == {INCONSISTENT_GROUP_PROTOCOL}
    assert node.state(group) == ("STABLE", 1)
    other.leave()
    other.faults.clear()
