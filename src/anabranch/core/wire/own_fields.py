"""Tagged fields that Kafka does not have: reasons, and what they are made of.

What: KIP-482 lets a message carry fields that a peer may not know; a peer that does not know them
keeps or skips them. Ours have one tag, `OWN_TAG`, far above Kafka's, and mean by message:

    AlterPartition, a partition asked for     `Lags`: why a leader takes followers out
    a metadata record, the first of a batch   `SaidReasons`: why the controller decided that batch
    DescribeQuorum, the request               empty: tell the newest reasons too
    DescribeQuorum, the response              `SaidReasons`
    DescribeCluster, the request              empty: tell who is cordoned or has a full folder too
    DescribeCluster, the response             `Cordoned`
    BrokerHeartbeat, the request              `FullDirectories`
    DescribeLogDirs, the request              empty: tell which folders are full too, and what logs
                                              wait for
    DescribeLogDirs, the response             `FullFolders`
    DescribeLogDirs, a partition led          `WaitsFor`: why it does not become diskless yet
    AlterPartitionReassignments, the request  `PlanAsked`: what a plan of moves shall do
    AlterPartitionReassignments, the response `PlanTold`: that it was understood, and its progress
    ListPartitionReassignments, the request   empty: tell of the plan too
    ListPartitionReassignments, the response  `PlanTold`
    CreateTopics, the request                 empty: tell where replicas are placed too
    CreateTopics, the response                `ReplicaMaps`
    BrokerRegistration, the request           `FolderHistory`: whose logs its folders hold
    Metadata, the request                     empty: tell which topics are diskless too
    Metadata, the response                    `DisklessTopics`, without partitions
    DescribeTopicPartitions, the request      empty: tell how diskless partitions are placed too
    DescribeTopicPartitions, the response     `DisklessTopics`
    Fetch, a follower's partition refused     `LocalStart`: where the leader's own disk begins, and
                                              what was known of the log there
    AddPartitionsToTxn, the request           empty: wait while the transaction before is ended

Records of brokers declare fields of ours with the next tags, 10,001 and 10,002: `full_log_dirs`,
`is_noted`; NoOpRecord has 10,003: `absences`. The reasons of a batch may ride on the same record.

Why not records or an API key of our own: older nodes, Kafka's tools and clients read the same
messages as before, so nothing has to be switched on. Rules kept: who loses a field loses a sentence
and nothing else; but for `PlanAsked`, to which an answer without `PlanTold` says that it was lost,
and for `FolderHistory`, without which a folder is taken for the broker's newest, as Kafka does;
and for full folders: where a broker does not tell of them, their replicas leave by their lag.
Source: KIP-482.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from anabranch.core.errors import ProtocolError
from anabranch.core.wire.codec import decode, encode_bytes
from anabranch.core.wire.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
)

OWN_TAG = 10_000
ASKED: dict[int, bytes] = {OWN_TAG: b""}
"""The tagged fields of a request that wants more than Kafka's."""

M = TypeVar("M", bound=Message)


class Lag(Struct):
    """One follower, by its leader's steady clock: since when it is silent, and behind."""

    broker_id: Int32 = -1
    silent_ms: Int64 = 0
    behind_ms: Int64 = 0


class Lags(Message, versions="0", flexible="0+"):
    """Followers that a leader takes out of its ISR."""

    lags: list[Lag] = []


class SaidReason(Struct):
    """A reason as it is kept: when, at which offset of the metadata log, about what."""

    offset: Int64 = -1
    at_ms: Int64 = -1
    code: String = ""
    sentence: String = ""
    partition: String = ""
    """ "flights-3", or empty."""
    brokers: list[Int32] = []
    """Brokers that came, went, joined or left."""


class SaidReasons(Message, versions="0", flexible="0+"):
    """Reasons, oldest first."""

    reasons: list[SaidReason] = []


class AskedMove(Struct):
    """One move of a plan that is handed over."""

    topic: String = ""
    partition: Int32 = -1
    before: list[Int32] = []
    after: list[Int32] = []
    why: String = ""
    because: String = ""


class PlanAsked(Message, versions="0", flexible="0+"):
    """What a plan shall do: "carry" with everything, or one of the verbs of
    `core/controller/moves/plans.py` alone."""

    verb: String = ""
    cluster_id: String = ""
    goal: String = ""
    made_at_ms: Int64 = 0
    most_at_once: Int32 = 0
    throttle: Int64 = -1
    moves: list[AskedMove] = []


class ToldMove(Struct):
    """A move that began and is not done, or that waits for something; `sentence` says for what."""

    topic: String = ""
    partition: Int32 = -1
    before: list[Int32] = []
    after: list[Int32] = []
    sentence: String = ""


class PlanTold(Message, versions="0", flexible="0+"):
    """How the newest plan fares; `plan_id` 0: there is none."""

    plan_id: Int64 = 0
    goal: String = ""
    made_at_ms: Int64 = 0
    state: Int8 = 0
    backwards: Bool = False
    most_at_once: Int32 = 0
    throttle: Int64 = -1
    sentence: String = ""
    waiting: Int32 = 0
    under_way: Int32 = 0
    done: Int32 = 0
    gone: Int32 = 0
    moves: list[ToldMove] = []
    cordons: Annotated[list[Int32], "tag 0"] = []
    """Brokers that the plan has cordoned."""


class Cordoned(Message, versions="0", flexible="0+"):
    """Brokers on which nothing new is placed."""

    brokers: list[Int32] = []
    full: Annotated[list[Int32], "tag 0"] = []
    """Brokers with a folder that has no room for records."""


class FullFolders(Message, versions="0", flexible="0+"):
    """The folders of a broker that have no room for records."""

    paths: list[String] = []


class WaitsFor(Message, versions="0", flexible="0+"):
    """What the log of a topic that becomes diskless waits for."""

    sentence: String = ""


class FullDirectories(Message, versions="0", flexible="0+"):
    """The ids of a broker's folders that have no room for records."""

    ids: list[Uuid] = []


class ReplicaRow(Struct):
    """The replicas of one partition; the first is the preferred leader."""

    brokers: list[Int32] = []


class ReplicaMap(Struct):
    """Where the replicas of a new topic are placed: brokers of each partition, in order."""

    topic: String = ""
    partitions: list[ReplicaRow] = []


class ReplicaMaps(Message, versions="0", flexible="0+"):
    """Of all topics of a request that are created, or would be."""

    topics: list[ReplicaMap] = []


def has_own(request: Message) -> bool:
    """Whether a request has a field of ours."""
    return OWN_TAG in (request.unknown_tagged_fields or {})


class SeenFolder(Struct):
    """A folder, the incarnations of its broker that it has seen, and the broker epoch of the last
    of them that was registered, -1 where it was not noted."""

    directory_id: Uuid = ZERO_UUID
    incarnation_ids: list[Uuid] = []
    broker_epoch: Annotated[Int64, "tag 0"] = -1


class FolderHistory(Message, versions="0", flexible="0+"):
    """What a broker's folders have seen, without those that keep no account of that."""

    folders: list[SeenFolder] = []


class PlacedPartition(Struct):
    """How a diskless partition is placed (`core/controller/diskless/reconciliation.py`)."""

    partition_index: Int32 = -1
    assigned_racks: list[String] = []
    rack_coverage: Int32 = 0
    """Percent of the target racks that have a replica."""
    placement_state: String = ""
    has_drifted: Bool = False
    exceptions: list[String] = []
    sentences: list[String] = []


class DisklessTopic(Struct):
    """A diskless topic: the racks that should have a replica of each partition, and how many."""

    name: String = ""
    is_diskless: Bool = True
    effective_rf: Int32 = 0
    target_racks: list[String] = []
    partitions: list[PlacedPartition] = []


class DisklessTopics(Message, versions="0", flexible="0+"):
    """The topics of an answer that are diskless."""

    topics: list[DisklessTopic] = []


class BegunEpoch(Struct):
    """A leader epoch, and its first offset."""

    epoch: Int32 = -1
    start_offset: Int64 = -1


class LocalStart(Message, versions="0", flexible="0+"):
    """Where the part of a log begins that its leader has on its disk, -1 where that is the log;
    the leader epochs before that, and the producers there as a snapshot file has them, empty where
    there was no room for them in this answer."""

    offset: Int64 = -1
    epochs: list[BegunEpoch] = []
    producers: Bytes = b""


def tagged(message: Message) -> dict[int, bytes]:
    """The tagged fields that carry a message of ours."""
    return {OWN_TAG: encode_bytes(message, 0)}


def untagged(kind: type[M], fields: Mapping[int, bytes] | None) -> M:
    """The message among tagged fields; an empty one where none can be read."""
    found = (fields or {}).get(OWN_TAG)
    if not found:
        return kind()
    try:
        return decode(kind, found, 0)
    except ProtocolError:
        return kind()
