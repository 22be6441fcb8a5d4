"""Every code a controller can say is said, from state, with a sentence that names the cause."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.core.controller.test_controllers import register as register_controller
from tests.core.controller.test_hints import hint
from tests.core.controller.test_in_sync import alter
from tests.core.controller.test_managed_reconciler import live, set_config
from tests.core.controller.test_managed_replicas import diskless, racked_world, reassign
from tests.core.controller.test_migrations import begin, hear, made
from tests.core.controller.test_plans import ask as ask_plan
from tests.core.controller.test_plans import carry
from tests.core.controller.test_resources import alter as alter_config
from tests.core.controller.test_room import tell
from tests.core.controller.world import World
from tests.core.metadata.test_features import SAFE, UPGRADE, update
from tests.core.token_kit import TokenWorld

import anabranch.core
from anabranch.core.access.standard_authorizer import StandardAuthorizer
from anabranch.core.controller.partitions.observers import set_observers
from anabranch.core.controller.reasons import CODES, Code
from anabranch.core.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from anabranch.core.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from anabranch.core.wire.messages.create_acls import AclCreation, CreateAclsRequest
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest
from anabranch.core.wire.metadata_records import PartitionChangeRecord
from anabranch.core.wire.own_fields import Lag, Lags, tagged
from anabranch.core.wire.own_records import MissingReplicasRecord

TOPIC = 2
UNCLEAN = "unclean.leader.election.enable"


def keep_alive(world: World, broker_id: int, ms: int) -> None:
    for _ in range(ms // 2_000):
        world.beat(broker_id)
        world.pass_time(2_000)


@pytest.fixture(scope="module")
def told() -> World:
    """A life of a cluster in which everything happens once."""
    world = World()
    register_controller(world, 1)
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3], min_insync_replicas="2")
    world.ask(CreatePartitionsRequest(topics=[
        CreatePartitionsTopic(name="t", count=2, assignments=None)]))  # fmt: skip
    world.commit_result(set_observers(world.controller.state, "t", 0, []))
    carry(world, {0: (1, 3, 2)})
    ask_plan(world, "cancel")
    world.start(4)
    move(world, [1, 2, 4], None, [1, 3, 2], [1, 2, 3])
    world.commit_result(set_observers(world.controller.state, "t", 0, [4]))
    alter(world, 1)
    alter(world, 1, 2, 3)
    lag(world)
    alter(world, 1, 2)
    alter_config(world, TOPIC, "t", "min.insync.replicas", "3")
    hint(world, 1)
    world.now_ms += 5_000
    world.beat(2)
    world.now_ms += 5_000
    world.beat(2)
    keep_alive(world, 2, 20_000)
    world.register(1, incarnation=2)
    world.beat(1)
    alter(world, 2, 1, broker_id=2)
    keep_alive_both(world, 310_000)
    world.beat(2, want_fence=True)
    world.beat(1, want_fence=True)
    world.beat(2)
    world.beat(2, want_fence=True)
    alter_config(world, TOPIC, "t", UNCLEAN, "true")
    world.start(3)
    world.register(5, log_dirs=[bytes([205]) * 16, bytes([206]) * 16])
    world.beat(5)
    tell(world, 5, bytes([205]) * 16)
    tell(world, 5)
    world.beat(5, offline_log_dirs=[bytes([206]) * 16])
    world.ask(UnregisterBrokerRequest(broker_id=5))
    world.ask(UnregisterBrokerRequest(broker_id=4))
    waits(world)
    update(world, ("group.version", 0, SAFE))
    update(world, ("group.version", 1, UPGRADE))
    world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    access(world)
    world.reasons += diskless_life().reasons
    world.reasons += migration().reasons
    return world


def migration() -> World:
    """A classic topic takes the first step to become diskless."""
    world = made()
    begin(world)
    hear(world, 2, 0)
    return world


def access(world: World) -> None:
    """A rule of access is added, a quota set, and a user; a delegation token is made."""
    world.controller.authorizer = StandardAuthorizer(
        lambda: world.controller.image.acls, frozenset({"User:ANONYMOUS"})
    )
    allowed = AclCreation(
        resource_type=TOPIC, resource_name="t", resource_pattern_type=3, principal="User:a",
        host="*", operation=3, permission_type=3,
    )  # fmt: skip
    world.ask(CreateAclsRequest(creations=[allowed]))
    limited = EntryData([EntityData("user", "a")], [OpData("producer_byte_rate", 1.0)])
    world.ask(AlterClientQuotasRequest(entries=[limited]))
    user = ScramCredentialUpsertion(
        name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p"
    )
    world.ask(AlterUserScramCredentialsRequest(upsertions=[user]))
    tokens = TokenWorld()
    tokens.make()
    world.reasons += tokens.reasons


def diskless_life() -> World:
    """A rack with diskless replicas goes for good; a partition drifts and is left alone; another
    was written by an older version."""
    world = racked_world(1, 2, 3)
    diskless(world, "d")
    live(world, 320_000, 1, 2)
    diskless(world, "e", partitions=4)
    world.register(7, rack="d")
    live(world, 2_000, 1, 2, 7)
    set_config(world, "diskless.managed.rf.auto.reconcile", "false")
    reassign(world, "d", 0, [1])
    leaderless = PartitionChangeRecord(
        partition_id=0, topic_id=world.image.topic_ids_by_name["d"], leader=-1
    )
    world.commit([leaderless])
    live(world, 2_000, 1, 2)
    world.register(4, rack="a")
    world.beat(1, want_fence=True)
    live(world, 2_000, 2, 4)
    return world


def move(world: World, *targets: list[int] | None) -> None:
    """Ask for moves of t-0, one after the other."""
    for replicas in targets:
        wanted = ReassignablePartition(partition_index=0, replicas=replicas)
        topic = ReassignableTopic(name="t", partitions=[wanted])
        world.ask(AlterPartitionReassignmentsRequest(topics=[topic]))


def lag(world: World) -> None:
    """The leader says why two followers leave."""
    slow = [
        Lag(broker_id=2, silent_ms=30_020, behind_ms=30_020),
        Lag(broker_id=3, silent_ms=400, behind_ms=31_500),
    ]
    alter(world, 1, unknown_tagged_fields=tagged(Lags(lags=slow)))


def keep_alive_both(world: World, ms: int) -> None:
    for _ in range(ms // 2_000):
        world.beat(1)
        keep_alive(world, 2, 2_000)


def waits(world: World) -> None:
    """A topic that may elect uncleanly loses its only in-sync replica to a hint, then to silence;
    before, a replica that was missing is given to a broker that comes."""
    topic_id = world.image.topic("t").topic_id  # type: ignore[union-attr]
    world.start(7, 8)
    world.commit([MissingReplicasRecord(partition_id=0, topic_id=topic_id, missing=1)])
    world.pass_time(600)
    world.create("u", [7, 8], unclean_leader_election_enable="true")
    world.beat(8, want_fence=True)
    world.beat(8)
    hint(world, 7)
    keep_alive(world, 8, 12_000)


@pytest.mark.parametrize("code", list(Code))
def test_each_code_is_said(told: World, code: Code) -> None:
    said = told.sentences(code)
    assert said, f"nothing says {code}"
    assert all(sentence and sentence[-1] not in ".:" for sentence in said)


def test_nothing_is_said_without_a_code_of_the_table(told: World) -> None:
    assert {reason.code for reason in told.reasons} == set(Code) == set(CODES)
    assert all(isinstance(reason.code, Code) for reason in told.reasons)


@pytest.mark.parametrize(
    "sentence",
    [
        "brokers 2 and 3 left the ISR of t-0: its leader, broker 1, asked for it",
        "broker 2 left the ISR of t-0: no fetch for 30.0 s",
        "broker 3 left the ISR of t-0: it fetches, and was not caught up for 31.5 s",
        "broker 1 left the ISR of t-0: its process is gone",
        "broker 3 left the ISR of t-1: its session expired",
        "broker 2 leads t-0 (broker 1: its process is gone)",
        "back to preferred brokers: 1 leadership",
        "no replica can lead t-0 (broker 1: it asked to be fenced)",
        "broker 1 closed its connection and nothing listens at its address: it is fenced",
        "broker 3 sent no heartbeat for 9000 ms and is fenced",
        "set or removed 1 credential of users",
        "u-0 has no leader (broker 7: its process is gone); an unclean election waits for a whole "
        "session without a heartbeat",
        "broker 7, fenced before, was silent for 9000 ms",
        "broker 8 leads u-0 and may lack acknowledged records (broker 7: its session expired)",
        "the eligible leader replicas of topic t are cleared: min.insync.replicas changed",
        "broker 3 (rack c) is unreachable: it keeps 1 diskless replica for 300000 ms",
        "rack c is DEGRADED: none of its brokers can get replicas; existing ones stay; "
        "effective replication factor 3",
        "rack c is UNAVAILABLE: all its brokers are unavailable; its diskless replicas are "
        "removed; "
        "effective replication factor 2",
        "d-0 loses the replica on broker 3, because rack c is unavailable",
        "e-3 prefers broker 7 as its leader instead of broker 1: it is preferred by more partitions",
        "closer to one replica in each rack: 1 diskless partition; no records move",
    ],
)
def test_sentences_say_why(told: World, sentence: str) -> None:
    assert sentence in [reason.sentence for reason in told.reasons]


def test_every_reason_is_made_with_a_code_of_the_table() -> None:
    for path in sorted(Path(anabranch.core.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Reason":
                assert ast.unparse(node.args[0]).startswith("Code."), f"{path}:{node.lineno}"
