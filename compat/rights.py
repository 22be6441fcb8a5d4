"""Each request with each right missing: the requests, and what of an answer is compared.

Clients come from CLIENT, whoever administers the cluster from ADMIN: addresses are all that tells
them apart. The client has every right but one, in turn, or none, or all. Requests change nothing
that a later one depends on, or `Table` makes it again. Of an answer codes, names and authorized
operations are kept. Left out: logins, and what only controllers answer, as nodes of Anabranch
trust their own listeners. Requests about delegation tokens are in `token_rights.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator
from typing import Any

from anabranch.core.access.acl_filter import AclFilter
from anabranch.core.access.acls import ALLOW, DENY, LITERAL, Acl
from anabranch.core.access.authorize import CLUSTER, Operation, ResourceType
from anabranch.core.errors import Bug
from anabranch.core.types import TopicId
from anabranch.core.wire.codec import encode_bytes
from anabranch.core.wire.messages import (
    API_KEYS,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from anabranch.core.wire.records import Record, build_batch
from anabranch.core.wire.schema import Message, Struct
from compat.rights_wire import ADMIN, ALL, CLIENT, Asked, Wire
from compat.row import Failed
from compat.token_rights import USER, Tokens

ANONYMOUS = "User:ANONYMOUS"
RESOURCES = {
    ResourceType.CLUSTER: CLUSTER, ResourceType.TOPIC: "*", ResourceType.GROUP: "*",
    ResourceType.TRANSACTIONAL_ID: "*", ResourceType.DELEGATION_TOKEN: "*", ResourceType.USER: "*",
}  # fmt: skip
RIGHTS = {
    ResourceType.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.GROUP: "READ DESCRIBE DELETE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.CLUSTER: (
        "CREATE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE ALTER DESCRIBE"
    ),
    ResourceType.TRANSACTIONAL_ID: "DESCRIBE WRITE",
    ResourceType.DELEGATION_TOKEN: "DESCRIBE",
    ResourceType.USER: "CREATE_TOKENS DESCRIBE_TOKENS",
}
"""The operations that a type of resource knows."""
KEPT = {
    "name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "key",
    "error_message", "user", "principal_name", "token_requester_principal_name",
    "authorized_operations", "cluster_authorized_operations", "topic_authorized_operations",
}  # fmt: skip
"""Fields of answers that are compared beside error codes."""


def kept(answer: Any) -> Any:
    """What of an answer is compared; lists in one order."""
    if answer is None:
        return "hangs up"
    if isinstance(answer, list | tuple):
        inner = (kept(each) for each in answer if isinstance(each, Struct))
        return sorted(filter(None, inner), key=repr)
    found = {}
    for name in answer.__struct_fields__:
        value = getattr(answer, name)
        if name in KEPT or name.endswith("error_code"):
            found[name] = value
        elif isinstance(value, list | tuple) and (inner := kept(value)):
            found[name] = inner
    return found


def batch() -> bytes:
    """A record of now, which retention leaves alone."""
    now_ms = time.time_ns() // 1_000_000
    return bytes(build_batch([Record(0, now_ms, None, b"v", ())], base_offset=0, leader_epoch=0))


def requests(topic_id: TopicId) -> Iterator[tuple[str, Message]]:
    """What is asked, with a label where a request is there twice."""
    both = ("t", "absent")
    for transactional in (None, "x"):
        data = produce.PartitionProduceData(0, batch())
        topic = produce.TopicProduceData("t", topic_id, [data])
        yield f"{transactional}", produce.ProduceRequest(transactional, 1, 1_000, [topic])
    partition = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000)
    for replica in (-1, 7):
        yield f"replica {replica}", fetch.FetchRequest(
            replica_id=replica, replica_state=fetch.ReplicaState(replica, -1), session_id=0,
            topics=[fetch.FetchTopic("t", topic_id, [partition])],
        )  # fmt: skip
    yield "", list_offsets.ListOffsetsRequest(-1, topics=[
        list_offsets.ListOffsetsTopic(name, [list_offsets.ListOffsetsPartition(0, -1, -1)])
        for name in both
    ])  # fmt: skip
    named = [metadata.MetadataRequestTopic(name=name) for name in both]
    for label, topics in (("named", named), ("all", None),
                          ("by id", [metadata.MetadataRequestTopic(topic_id, None)])):  # fmt: skip
        yield label, metadata.MetadataRequest(
            topics, allow_auto_topic_creation=False, include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )  # fmt: skip
    committed = [
        offset_commit.OffsetCommitRequestTopic(
            name, [offset_commit.OffsetCommitRequestPartition(0, 1)]
        )
        for name in both
    ]
    yield "", offset_commit.OffsetCommitRequest("g", topics=committed)
    one = [offset_fetch.OffsetFetchRequestTopic(name, [0]) for name in both]
    more = [offset_fetch.OffsetFetchRequestTopics(name, [0]) for name in both]
    for label, wanted in (("named", True), ("all", False)):
        yield label, offset_fetch.OffsetFetchRequest(
            "g", one if wanted else None,
            [offset_fetch.OffsetFetchRequestGroup(name, topics=more if wanted else None)
             for name in ("g", "nobody")],
        )  # fmt: skip
    for kind, key in ((0, "g"), (1, "x")):
        yield key, find_coordinator.FindCoordinatorRequest(key, kind, [key])
    yield "", join_group.JoinGroupRequest("g", 1, 1, protocol_type="consumer")
    yield "", heartbeat.HeartbeatRequest("g", 1, "m")
    yield "", leave_group.LeaveGroupRequest("g", "m", [leave_group.MemberIdentity("m")])
    yield "", sync_group.SyncGroupRequest("g", 1, "m")
    yield "", describe_groups.DescribeGroupsRequest(["g", "nobody"], True)
    yield "", list_groups.ListGroupsRequest()
    for name in ("made", "t"):
        topic = create_topics.CreatableTopic(name, 1, 1)
        yield name, create_topics.CreateTopicsRequest([topic], 1_000, True)
    for name in ("victim", "absent"):
        state = delete_topics.DeleteTopicState(name)
        yield name, delete_topics.DeleteTopicsRequest([state], [name], 10_000)
    yield (
        "by id",
        delete_topics.DeleteTopicsRequest(
            [delete_topics.DeleteTopicState(None, TopicId(b"\7" * 16))], ["absent"], 1_000
        ),
    )
    yield "", delete_records.DeleteRecordsRequest([
        delete_records.DeleteRecordsTopic(name, [delete_records.DeleteRecordsPartition(0, 0)])
        for name in both
    ], 10_000)  # fmt: skip
    for transactional in (None, "x"):
        yield f"{transactional}", init_producer_id.InitProducerIdRequest(transactional, 10_000)
    yield "", offset_for_leader_epoch.OffsetForLeaderEpochRequest(-1, [
        offset_for_leader_epoch.OffsetForLeaderTopic(
            name, [offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)]
        )
        for name in both
    ])  # fmt: skip
    added = [add_partitions_to_txn.AddPartitionsToTxnTopic(name, [0]) for name in both]
    yield "", add_partitions_to_txn.AddPartitionsToTxnRequest(
        [add_partitions_to_txn.AddPartitionsToTxnTransaction("x", 99, 0, False, added)],
        "x", 99, 0, added,
    )  # fmt: skip
    yield "", add_offsets_to_txn.AddOffsetsToTxnRequest("x", 99, 0, "g")
    yield "", end_txn.EndTxnRequest("x", 99, 0, True)
    marked = [write_txn_markers.WritableTxnMarkerTopic("absent", [0])]
    yield (
        "",
        write_txn_markers.WriteTxnMarkersRequest(
            [write_txn_markers.WritableTxnMarker(99, 0, True, marked)]
        ),
    )
    yield "", txn_offset_commit.TxnOffsetCommitRequest("x", "g", 99, 0, topics=[
        txn_offset_commit.TxnOffsetCommitRequestTopic(
            name, [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1)]
        )
        for name in both
    ])  # fmt: skip
    yield "", describe_acls.DescribeAclsRequest(*AclFilter(resource_name="no such"))
    wrong = Acl(ResourceType.CLUSTER, LITERAL, "no-cluster", "User:a", "*", ALL, ALLOW)
    yield "", create_acls.CreateAclsRequest([creation(wrong)])
    yield "", delete_acls.DeleteAclsRequest([deletion(AclFilter(principal="User:nobody"))])
    for kind, name in ((2, "t"), (2, "absent"), (4, "1"), (4, ""), (32, "g"), (8, "1"), (16, "m")):
        resource = describe_configs.DescribeConfigsResource(kind, name, ["no.such"])
        yield f"{kind} {name}", describe_configs.DescribeConfigsRequest([resource])
        config = alter_configs.AlterableConfig("retention.ms", "1000")
        yield (
            f"{kind} {name}",
            alter_configs.AlterConfigsRequest(
                [alter_configs.AlterConfigsResource(kind, name, [config])], True
            ),
        )
        change = incremental_alter_configs.AlterableConfig("retention.ms", 0, "1000")
        yield (
            f"{kind} {name}",
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                [incremental_alter_configs.AlterConfigsResource(kind, name, [change])], True
            ),
        )
    described = [describe_log_dirs.DescribableLogDirTopic("t", [0])]
    yield "", describe_log_dirs.DescribeLogDirsRequest(described)
    yield (
        "",
        create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsTopic(name, 2, None) for name in both], 1_000, True
        ),
    )
    yield "", delete_groups.DeleteGroupsRequest(["nobody", "lost"])
    yield "", elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions("t", [0])], 1_000)
    placed = alter_replica_log_dirs.AlterReplicaLogDirTopic("t", [0])
    wanted = alter_replica_log_dirs.AlterReplicaLogDir("/no/such/folder", [placed])
    yield "", alter_replica_log_dirs.AlterReplicaLogDirsRequest([wanted])
    yield "", describe_client_quotas.DescribeClientQuotasRequest(
        [describe_client_quotas.ComponentData("user", 0, "nobody")], True
    )  # fmt: skip
    limited = alter_client_quotas.EntryData(
        [alter_client_quotas.EntityData("user", "nobody")],
        [alter_client_quotas.OpData("producer_byte_rate", 1_000.0, False)],
    )
    yield "", alter_client_quotas.AlterClientQuotasRequest([limited], True)
    yield "", describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
        [describe_user_scram_credentials.UserName("nobody")]
    )  # fmt: skip
    gone_user = alter_user_scram_credentials.ScramCredentialDeletion("nobody", 1)
    yield "", alter_user_scram_credentials.AlterUserScramCredentialsRequest([gone_user])
    moved = [alter_partition_reassignments.ReassignablePartition(0, None)]
    yield (
        "",
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            1_000, True, [alter_partition_reassignments.ReassignableTopic("t", moved)]
        ),
    )
    yield "", list_partition_reassignments.ListPartitionReassignmentsRequest(1_000)
    gone = [
        offset_delete.OffsetDeleteRequestTopic(
            name, [offset_delete.OffsetDeleteRequestPartition(0)]
        )
        for name in both
    ]
    yield "", offset_delete.OffsetDeleteRequest("lost", gone)
    voters = describe_quorum.QuorumTopicData(
        "__cluster_metadata", [describe_quorum.QuorumPartitionData(0)]
    )
    yield "", describe_quorum.DescribeQuorumRequest([voters])
    feature = update_features.FeatureUpdateKey("no.such", 1)
    yield "", update_features.UpdateFeaturesRequest(1_000, [feature], True)
    yield "", describe_cluster.DescribeClusterRequest(True)
    yield (
        "",
        describe_producers.DescribeProducersRequest(
            [describe_producers.TopicRequest(name, [0]) for name in both]
        ),
    )
    yield "", unregister_broker.UnregisterBrokerRequest(77)
    yield "", describe_transactions.DescribeTransactionsRequest(["x", "nobody"])
    yield "", list_transactions.ListTransactionsRequest()
    yield "", list_config_resources.ListConfigResourcesRequest([2, 16, 32])
    yield (
        "",
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(name) for name in both]
        ),
    )


def creation(acl: Acl) -> create_acls.AclCreation:
    """A rule as CreateAcls names it."""
    return create_acls.AclCreation(
        resource_type=acl.resource_type, resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host,
        operation=acl.operation, permission_type=acl.permission,
    )  # fmt: skip


def deletion(wanted: AclFilter) -> delete_acls.DeleteAclsFilter:
    """A filter as DeleteAcls names it."""
    return delete_acls.DeleteAclsFilter(*wanted)


class Table:
    """The rights of the client on a node with an authorizer, and what it is answered."""

    def __init__(self, peer: Asked, logins: str = "") -> None:
        """`logins` is the address of a listener with logins, without which tokens are left out."""
        self.peer = peer
        self.users = [ANONYMOUS, *([f"User:{USER}"] if logins else [])]
        self.admin, self.client = Wire(peer.bootstrap), Wire(peer.bootstrap, CLIENT)
        self.give(*(Acl(kind, LITERAL, name, ANONYMOUS, ADMIN, ALL, ALLOW)
                    for kind, name in RESOURCES.items()))  # fmt: skip
        self.make("t")
        topic = self.admin.ask(metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")]))
        self.topic_id = topic.topics[0].topic_id
        self.warm_up()
        self.tokens = None
        if logins:
            self.give(*Tokens.rules_of_owner())
            self.tokens = Tokens(peer, logins)

    def give(self, *acls: Acl) -> None:
        """Make rules, and wait until the broker knows them."""
        answer = self.admin.ask(create_acls.CreateAclsRequest([creation(each) for each in acls]))
        if any(each.error_code for each in answer.results):
            raise Failed(f"no rules: {answer.results}")
        wanted = sum(each.host == CLIENT for each in acls)
        if wanted:
            self.peer.wait(lambda: self.rules() >= wanted, "the rules")

    def take(self) -> None:
        """Remove the client's rules."""
        self.admin.ask(delete_acls.DeleteAclsRequest([deletion(AclFilter(host=CLIENT))]))
        self.peer.wait(lambda: not self.rules(), "no rules")

    def rules(self) -> int:
        """How many of the client's rules the broker knows."""
        answer = self.admin.ask(describe_acls.DescribeAclsRequest(*AclFilter(host=CLIENT)))
        return sum(len(each.acls) for each in answer.resources)

    def make(self, name: str) -> None:
        """A topic, if it is not there, that can be written to."""
        topic = create_topics.CreatableTopic(name, 1, 1)
        self.admin.ask(create_topics.CreateTopicsRequest([topic], 10_000))
        wanted = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)])

        def is_led() -> bool:
            (found,) = self.admin.ask(wanted).topics
            return not found.error_code and found.partitions[0].leader_id == 1

        self.peer.wait(is_led, f"a leader of {name}")

    def warm_up(self) -> None:
        """Have both coordinators loaded, and a block of producer ids at hand."""
        for kind, key in ((0, "g"), (1, "x")):
            find = find_coordinator.FindCoordinatorRequest(key, kind, [key])
            self.until_done(find, lambda answer: answer.coordinators[0].error_code)
        for transactional in (None, "x"):
            begin = init_producer_id.InitProducerIdRequest(transactional, 10_000)
            self.until_done(begin, lambda answer: answer.error_code)

    def until_done(self, body: Message, code: Callable[[Any], int]) -> None:
        """Ask again until the answer has no error."""
        self.peer.wait(lambda: not code(self.admin.ask(body)), type(body).__name__)

    def commit(self, group: str) -> None:
        """A group that has committed an offset."""
        offset = offset_commit.OffsetCommitRequestPartition(0, 1)
        topic = offset_commit.OffsetCommitRequestTopic("t", [offset])
        wanted = offset_commit.OffsetCommitRequest(group, topics=[topic])
        self.until_done(wanted, lambda answer: answer.topics[0].partitions[0].error_code)

    def answers(self) -> dict[str, Any]:
        """What the client is answered, in the oldest and the newest version of each request."""
        found = {}
        for oldest in (True, False):
            self.make("victim")
            for group in ("g", "lost"):
                self.commit(group)
            for label, body in requests(self.topic_id):
                version = first_of(body) if oldest else last_of(body)
                name = f"{type(body).__name__} {version} {label}"
                found[name] = kept(self.client.ask(body, version))
            if self.tokens is not None:
                found |= self.answers_about(self.tokens, oldest)
        return found

    def answers_about(self, tokens: Tokens, oldest: bool) -> dict[str, Any]:
        """The same of requests about delegation tokens."""
        tokens.settle()
        found = {}
        for label, body in tokens.requests():
            version = first_of(body) if oldest else last_of(body)
            name = f"{type(body).__name__} {version} {label}"
            found[name] = kept(tokens.client.ask(body, version))
        return found

    def rows(self, some: Container[str] | None = None) -> dict[str, Any]:
        """What the client is answered without a right, with all of them, and without one of them:
        with each, or with `some` alone."""
        everything = [
            Acl(kind, LITERAL, name, user, CLIENT, ALL, ALLOW)
            for kind, name in RESOURCES.items()
            for user in self.users
        ]
        found = {"no right": self.answers()}
        self.give(*everything)
        found["every right"] = self.answers()
        for kind, operations in RIGHTS.items():
            for operation in operations.split():
                missing = f"not {operation} on {kind.name}"
                if some is not None and missing not in some:
                    continue
                code = int(Operation[operation])
                self.take()
                denied = [
                    Acl(kind, LITERAL, RESOURCES[kind], user, CLIENT, code, DENY)
                    for user in self.users
                ]
                self.give(*everything, *denied)
                found[missing] = self.answers()
        self.take()
        return found


SERVED = {write_txn_markers.WriteTxnMarkersRequest: 1}
"""The newest version that Kafka 4.1 serves, where Anabranch has a newer one."""


def last_of(body: Message) -> int:
    """The newest version in which a request can be asked."""
    return SERVED.get(type(body), max(API_KEYS[type(body).api_key].versions))


def first_of(body: Message) -> int:
    """The oldest version that can carry what a request asks, such as "all topics"."""
    for version in API_KEYS[type(body).api_key].versions:
        try:
            encode_bytes(body, version)
        except Bug:
            continue
        return version
    raise Failed(f"no version can carry {body}")
