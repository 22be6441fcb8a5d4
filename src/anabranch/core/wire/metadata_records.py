"""The records of the metadata log: Apache Kafka's own, by type id, name, version and field.

A record's value on the log (KIP-631):

    frame version  unsigned varint, 1
    type id        unsigned varint   which record
    version        unsigned varint   of the record's schema
    body           as the schema of that version says

Types that no decision here acts on are described all the same, so that every log that Kafka 4.1
writes can be read. Control records of the same log are in control_records.py and can be imported
from here too. Records of our own are in own_records.py; they are encoded and decoded here.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import Annotated, TypeAlias

from anabranch.core.errors import ProtocolError
from anabranch.core.types import ZERO_TOPIC_ID, Buffer
from anabranch.core.wire.codec import decode_exact, encode
from anabranch.core.wire.control_records import KRaftVersionRecord as KRaftVersionRecord
from anabranch.core.wire.control_records import LeaderChangeMessage as LeaderChangeMessage
from anabranch.core.wire.control_records import SnapshotFooterRecord as SnapshotFooterRecord
from anabranch.core.wire.control_records import SnapshotHeaderRecord as SnapshotHeaderRecord
from anabranch.core.wire.control_records import VotersRecord as VotersRecord
from anabranch.core.wire.own_records import OWN_RECORDS
from anabranch.core.wire.own_records import MissingReplicasRecord as MissingReplicasRecord
from anabranch.core.wire.own_records import PlacementCursorRecord as PlacementCursorRecord
from anabranch.core.wire.own_records import PlanMove as PlanMove
from anabranch.core.wire.own_records import PlanMovesRecord as PlanMovesRecord
from anabranch.core.wire.own_records import PlanProgressRecord as PlanProgressRecord
from anabranch.core.wire.own_records import PlanRecord as PlanRecord
from anabranch.core.wire.own_records import ReplicaRolesRecord as ReplicaRolesRecord
from anabranch.core.wire.primitives import Refusal, read_uvarint, uvarint_bytes
from anabranch.core.wire.schema import (
    ZERO_UUID,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    String,
    Struct,
    TopicUuid,
    Uint16,
    Uuid,
)


class BrokerEndpoint(Struct):
    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


class BrokerFeature(Struct):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class RegisterBrokerRecord(Message, type_id=0, versions="0-3", flexible="0+"):
    broker_id: Int32 = 0
    is_migrating_zk_broker: Annotated[Bool, "2+"] = False
    incarnation_id: Uuid = ZERO_UUID
    broker_epoch: Int64 = 0
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: NullableString = ""
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, "1+"] = False
    log_dirs: Annotated[list[Uuid], "3+", "tag 0"] = []
    full_log_dirs: Annotated[list[Uuid], "tag 10001"] = []
    """Of ours: folders without room."""
    is_noted: Annotated[Bool, "tag 10002"] = False
    """Of ours: its folders have noted this incarnation; one of an earlier version notes nothing."""


class UnregisterBrokerRecord(Message, type_id=1, versions="0", flexible="0+"):
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


class TopicRecord(Message, type_id=2, versions="0", flexible="0+"):
    name: String = ""
    topic_id: TopicUuid = ZERO_TOPIC_ID


class PartitionRecord(Message, type_id=3, versions="0-2", flexible="0+"):
    partition_id: Int32 = -1
    topic_id: TopicUuid = ZERO_TOPIC_ID
    replicas: list[Int32] = []
    isr: list[Int32] = []
    removing_replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    leader: Int32 = -1
    leader_recovery_state: Annotated[Int8, "tag 0"] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[list[Uuid], "1+"] = []
    eligible_leader_replicas: Annotated[list[Int32] | None, "2+", "tag 1"] = None
    last_known_elr: Annotated[list[Int32] | None, "2+", "tag 2"] = None
    former_replicas: Annotated[list[Int32], "tag 10001"] = []
    """Of ours: the order of the replicas before a move under way, where cancelling needs it."""


class ConfigRecord(Message, type_id=4, versions="0", flexible="0+"):
    resource_type: Int8 = 0
    resource_name: String = ""
    name: String = ""
    value: NullableString = ""


class PartitionChangeRecord(Message, type_id=5, versions="0-2", flexible="0+"):
    partition_id: Int32 = -1
    topic_id: TopicUuid = ZERO_TOPIC_ID
    isr: Annotated[list[Int32] | None, "tag 0"] = None
    leader: Annotated[Int32, "tag 1"] = -2
    replicas: Annotated[list[Int32] | None, "tag 2"] = None
    removing_replicas: Annotated[list[Int32] | None, "tag 3"] = None
    adding_replicas: Annotated[list[Int32] | None, "tag 4"] = None
    leader_recovery_state: Annotated[Int8, "tag 5"] = -1
    directories: Annotated[list[Uuid] | None, "1+", "tag 8"] = None
    eligible_leader_replicas: Annotated[list[Int32] | None, "2+", "tag 6"] = None
    last_known_elr: Annotated[list[Int32] | None, "2+", "tag 7"] = None
    former_replicas: Annotated[list[Int32] | None, "tag 10001"] = None
    """Of ours: see PartitionRecord."""


class FenceBrokerRecord(Message, type_id=7, versions="0", flexible="0+"):
    id: Int32 = 0
    epoch: Int64 = 0


class UnfenceBrokerRecord(Message, type_id=8, versions="0", flexible="0+"):
    id: Int32 = 0
    epoch: Int64 = 0


class RemoveTopicRecord(Message, type_id=9, versions="0", flexible="0+"):
    topic_id: TopicUuid = ZERO_TOPIC_ID


class DelegationTokenRecord(Message, type_id=10, versions="0", flexible="0+"):
    owner: String = ""
    requester: String = ""
    renewers: list[String] = []
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: String = ""


class UserScramCredentialRecord(Message, type_id=11, versions="0", flexible="0+"):
    name: String = ""
    mechanism: Int8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0


class FeatureLevelRecord(Message, type_id=12, versions="0", flexible="0+"):
    name: String = ""
    feature_level: Int16 = 0


class EntityData(Struct):
    entity_type: String = ""
    entity_name: NullableString = ""


class ClientQuotaRecord(Message, type_id=14, versions="0", flexible="0+"):
    entity: list[EntityData] = []
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class ProducerIdsRecord(Message, type_id=15, versions="0", flexible="0+"):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class BrokerRegistrationChangeRecord(Message, type_id=17, versions="0-2", flexible="0+"):
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Annotated[Int8, "tag 0"] = 0
    in_controlled_shutdown: Annotated[Int8, "1+", "tag 1"] = 0
    log_dirs: Annotated[list[Uuid], "2+", "tag 2"] = []
    full_log_dirs: Annotated[list[Uuid] | None, "tag 10001"] = None
    """Of ours: the folders without room from now on; null: as before."""


class AccessControlEntryRecord(Message, type_id=18, versions="0", flexible="0+"):
    id: Uuid = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 0
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class RemoveAccessControlEntryRecord(Message, type_id=19, versions="0", flexible="0+"):
    id: Uuid = ZERO_UUID


class BrokerAbsence(Struct):
    """A broker that is unreachable, and for how long it was while a controller was active;
    `elapsed_ms` -1: nothing is known of it any more."""

    broker_id: Int32 = 0
    rack: NullableString = None
    elapsed_ms: Int64 = 0
    is_gone: Bool = False
    """Whether that was longer than the threshold for diskless replicas."""


class NoOpRecord(Message, type_id=20, versions="0", flexible="0+"):
    absences: Annotated[list[BrokerAbsence], "tag 10003"] = []
    """Of ours: what changed about unreachable brokers; without it the record changes nothing."""


class ZkMigrationStateRecord(Message, type_id=21, versions="0", flexible="0+"):
    zk_migration_state: Int8 = 0


class RemoveUserScramCredentialRecord(Message, type_id=22, versions="0", flexible="0+"):
    name: String = ""
    mechanism: Int8 = 0


class BeginTransactionRecord(Message, type_id=23, versions="0", flexible="0+"):
    name: Annotated[NullableString, "tag 0"] = None


class EndTransactionRecord(Message, type_id=24, versions="0", flexible="0+"):
    pass


class AbortTransactionRecord(Message, type_id=25, versions="0", flexible="0+"):
    reason: Annotated[NullableString, "tag 0"] = None


class RemoveDelegationTokenRecord(Message, type_id=26, versions="0", flexible="0+"):
    token_id: String = ""


class ControllerEndpoint(Struct):
    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


class ControllerFeature(Struct):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class RegisterControllerRecord(Message, type_id=27, versions="0", flexible="0+"):
    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: Bool = False
    end_points: list[ControllerEndpoint] = []
    features: list[ControllerFeature] = []


class ClearElrRecord(Message, type_id=28, versions="0", flexible="0+"):
    topic_name: String = ""


MetadataRecord: TypeAlias = Message
"""Any record of the tables below."""

_CLASSES: tuple[type[Message], ...] = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    PartitionChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    RemoveTopicRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
    FeatureLevelRecord,
    ClientQuotaRecord,
    ProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    NoOpRecord,
    ZkMigrationStateRecord,
    RemoveUserScramCredentialRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    RemoveDelegationTokenRecord,
    RegisterControllerRecord,
    ClearElrRecord,
)

METADATA_RECORDS = MappingProxyType({cls.type_id: cls for cls in _CLASSES})
"""Every record of Kafka's by its type id."""
ALL_RECORDS = MappingProxyType({**METADATA_RECORDS, **OWN_RECORDS})
"""Kafka's and ours."""

FRAME_VERSION = 1
ONE_BYTE = 0x80
"""Below it a varint is the byte itself."""


def encode_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """A record's value for the log, in a version of its schema, by default the newest."""
    if version is None:
        version = record.versions[-1]
    return b"".join((_record_head(record.type_id, version), *encode(record, version)))


@cache
def _record_head(type_id: int, version: int) -> bytes:
    """What stands before a record's fields; there are as many as versions of records."""
    return uvarint_bytes(FRAME_VERSION) + uvarint_bytes(type_id) + uvarint_bytes(version)


def decode_record(value: Buffer) -> MetadataRecord:
    """The record that a value holds; raises ProtocolError, also for what follows its end."""
    type_id, version, position = read_record_head(value)
    cls = ALL_RECORDS.get(type_id)
    if cls is None:
        detail = f"no metadata record has type id {type_id}"
        raise ProtocolError("MetadataRecord", version, "type id", 1, detail)
    return decode_exact(cls, value, version, position)


def read_record_head(value: Buffer) -> tuple[int, int, int]:
    """Type id, version and where the body starts, of a record's value."""
    if len(value) > 2 and value[0] == FRAME_VERSION and value[1] < ONE_BYTE > value[2]:
        return value[1], value[2], 3  # as nearly all are
    buffer = memoryview(value)
    try:
        frame_version, position = read_uvarint(buffer, 0)
        type_id, position = read_uvarint(buffer, position)
        version, position = read_uvarint(buffer, position)
    except (IndexError, Refusal) as problem:
        raise ProtocolError("MetadataRecord", 0, "head", 0, str(problem)) from problem
    if frame_version != FRAME_VERSION:
        detail = f"frame version {frame_version}, only {FRAME_VERSION} is known"
        raise ProtocolError("MetadataRecord", 0, "frame version", 0, detail)
    return type_id, version, position
