"""Error codes of the protocol, our exceptions, and whose fault each is: one table.

`ErrorCode` has every code of Kafka 4.1 under Kafka's name; `ERRORS` says whether trying again may
help and what it means, in a sentence. Exceptions say who is to blame: `ClientFault`, `PeerFault`
(another node), `StorageFault` (a disk), `Bug` (us). Bytes that cannot be decoded are a
`ProtocolError`. The rule it keeps: whatever is raised while a request is served has one code here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple


class ErrorInfo(NamedTuple):
    """Whether a client may try again with hope, and what the code means."""

    retriable: bool
    sentence: str


class ErrorCode(IntEnum):
    """Every error code of Kafka 4.1 by its name; any other is UNKNOWN_SERVER_ERROR."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @classmethod
    def _missing_(cls, value: object) -> ErrorCode | None:
        """A code of a later version: what the other side means by it, nobody here knows."""
        return cls.UNKNOWN_SERVER_ERROR if isinstance(value, int) else None


# fmt: off
_TABLE: tuple[tuple[ErrorCode, bool, str], ...] = (
    (ErrorCode.UNKNOWN_SERVER_ERROR, False, "An unexpected error occurred; the node's log has the "
        "details."),
    (ErrorCode.NONE, False, "No error."),
    (ErrorCode.OFFSET_OUT_OF_RANGE, False, "The offset is outside the range of the partition."),
    (ErrorCode.CORRUPT_MESSAGE, True, "A batch does not match its checksum, its size or its "
        "format."),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, "This node does not host that topic or "
        "partition."),
    (ErrorCode.INVALID_FETCH_SIZE, False, "The requested number of bytes is invalid."),
    (ErrorCode.LEADER_NOT_AVAILABLE, True, "The partition has no leader at the moment, for "
        "example during an election."),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, "This node does not lead the partition, or does not "
        "replicate it."),
    (ErrorCode.REQUEST_TIMED_OUT, True, "The request timed out."),
    (ErrorCode.BROKER_NOT_AVAILABLE, False, "The broker is not available."),
    (ErrorCode.REPLICA_NOT_AVAILABLE, True, "The replica is not available on this broker yet."),
    (ErrorCode.MESSAGE_TOO_LARGE, False, "The batch is larger than max.message.bytes allows."),
    (ErrorCode.STALE_CONTROLLER_EPOCH, False, "The controller has a newer epoch."),
    (ErrorCode.OFFSET_METADATA_TOO_LARGE, False, "The text stored with an offset is too long."),
    (ErrorCode.NETWORK_EXCEPTION, True, "The connection was closed before a response arrived."),
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, "The coordinator is still loading its state."),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, True, "No coordinator is available."),
    (ErrorCode.NOT_COORDINATOR, True, "This broker is not the coordinator of the group or "
        "transactional id."),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, False, "The topic name is invalid."),
    (ErrorCode.RECORD_LIST_TOO_LARGE, False, "The batch is larger than a segment may be."),
    (ErrorCode.NOT_ENOUGH_REPLICAS, True, "Fewer replicas are in sync than min.insync.replicas "
        "requires; nothing was written."),
    (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True, "The records were written, but then fewer "
        "replicas were in sync than required."),
    (ErrorCode.INVALID_REQUIRED_ACKS, False, "acks must be -1 (all), 0 or 1."),
    (ErrorCode.ILLEGAL_GENERATION, False, "The group has another generation."),
    (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, False, "The member shares no protocol with the rest "
        "of the group."),
    (ErrorCode.INVALID_GROUP_ID, False, "The group id is not allowed."),
    (ErrorCode.UNKNOWN_MEMBER_ID, False, "The group does not know this member."),
    (ErrorCode.INVALID_SESSION_TIMEOUT, False, "The session timeout is outside the limits of the "
        "broker."),
    (ErrorCode.REBALANCE_IN_PROGRESS, False, "The group is rebalancing: the member must join "
        "again."),
    (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, False, "The offsets to commit do not fit into one "
        "batch."),
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False, "Topic authorization failed."),
    (ErrorCode.GROUP_AUTHORIZATION_FAILED, False, "Group authorization failed."),
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False, "Cluster authorization failed."),
    (ErrorCode.INVALID_TIMESTAMP, False, "A timestamp is outside the range that the topic "
        "accepts."),
    (ErrorCode.UNSUPPORTED_SASL_MECHANISM, False, "The broker does not support this SASL "
        "mechanism."),
    (ErrorCode.ILLEGAL_SASL_STATE, False, "The request does not match the state of the SASL "
        "exchange."),
    (ErrorCode.UNSUPPORTED_VERSION, False, "This version of the request is not served."),
    (ErrorCode.TOPIC_ALREADY_EXISTS, False, "A topic with this name already exists."),
    (ErrorCode.INVALID_PARTITIONS, False, "The number of partitions is not allowed."),
    (ErrorCode.INVALID_REPLICATION_FACTOR, False, "The replication factor is not positive or "
        "larger than the number of brokers."),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, False, "The replica assignment is not allowed."),
    (ErrorCode.INVALID_CONFIG, False, "A setting is unknown or its value is not allowed."),
    (ErrorCode.NOT_CONTROLLER, True, "This node is not the active controller."),
    (ErrorCode.INVALID_REQUEST, False, "The request is inconsistent or incomplete."),
    (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, False, "The stored message format is too old for "
        "this request."),
    (ErrorCode.POLICY_VIOLATION, False, "The request violates a policy of the cluster."),
    (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False, "The producer's sequence number is not the "
        "expected one."),
    (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, False, "The batch was already written, and its offset "
        "is no longer known."),
    (ErrorCode.INVALID_PRODUCER_EPOCH, False, "A newer instance of this producer has written "
        "already."),
    (ErrorCode.INVALID_TXN_STATE, False, "The state of the transaction does not allow this "
        "operation."),
    (ErrorCode.INVALID_PRODUCER_ID_MAPPING, False, "The producer id does not belong to that "
        "transactional id."),
    (ErrorCode.INVALID_TRANSACTION_TIMEOUT, False, "The transaction timeout is larger than the "
        "broker allows."),
    (ErrorCode.CONCURRENT_TRANSACTIONS, True, "Another operation on this transaction is still "
        "running."),
    (ErrorCode.TRANSACTION_COORDINATOR_FENCED, False, "A newer transaction coordinator has taken "
        "over."),
    (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False, "The principal may not use this "
        "transactional id."),
    (ErrorCode.SECURITY_DISABLED, False, "The cluster has no security feature of that kind."),
    (ErrorCode.OPERATION_NOT_ATTEMPTED, False, "The operation was not attempted, because another "
        "part of the request failed."),
    (ErrorCode.KAFKA_STORAGE_ERROR, True, "A disk failed; the partition's folder is offline."),
    (ErrorCode.LOG_DIR_NOT_FOUND, False, "The broker has no such log folder."),
    (ErrorCode.SASL_AUTHENTICATION_FAILED, False, "The credentials were not accepted."),
    (ErrorCode.UNKNOWN_PRODUCER_ID, False, "The partition has no state of this producer."),
    (ErrorCode.REASSIGNMENT_IN_PROGRESS, False, "The partition is being reassigned."),
    (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, False, "Delegation tokens are switched off."),
    (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, False, "There is no such delegation token."),
    (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, False, "The delegation token belongs to another "
        "principal."),
    (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, False, "Delegation tokens are not available "
        "on this connection."),
    (ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, False, "The principal has no permission for "
        "this operation on delegation tokens."),
    (ErrorCode.DELEGATION_TOKEN_EXPIRED, False, "The delegation token has expired."),
    (ErrorCode.INVALID_PRINCIPAL_TYPE, False, "Principals of this type are not supported."),
    (ErrorCode.NON_EMPTY_GROUP, False, "The group still has members."),
    (ErrorCode.GROUP_ID_NOT_FOUND, False, "There is no such group."),
    (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, True, "The fetch session no longer exists; start a new "
        "one."),
    (ErrorCode.INVALID_FETCH_SESSION_EPOCH, True, "The fetch session's epoch is not the next one."),
    (ErrorCode.LISTENER_NOT_FOUND, True, "The leader has no listener of the name that this "
        "connection uses."),
    (ErrorCode.TOPIC_DELETION_DISABLED, False, "Deleting topics is switched off."),
    (ErrorCode.FENCED_LEADER_EPOCH, True, "The leader epoch in the request is older than this "
        "broker's."),
    (ErrorCode.UNKNOWN_LEADER_EPOCH, True, "The leader epoch in the request is newer than this "
        "broker's."),
    (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, False, "This version of the request cannot carry "
        "that codec."),
    (ErrorCode.STALE_BROKER_EPOCH, False, "The broker has since registered again."),
    (ErrorCode.OFFSET_NOT_AVAILABLE, True, "This replica cannot answer for that offset yet."),
    (ErrorCode.MEMBER_ID_REQUIRED, False, "The member must join again with the id that it was "
        "given."),
    (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, True, "The preferred leader is not available."),
    (ErrorCode.GROUP_MAX_SIZE_REACHED, False, "The group has the maximum number of members."),
    (ErrorCode.FENCED_INSTANCE_ID, False, "Another member has joined under this static member's "
        "id."),
    (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, True, "No replica that can lead is available."),
    (ErrorCode.ELECTION_NOT_NEEDED, True, "The partition already has the requested leader."),
    (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, False, "The partition is not being reassigned."),
    (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, False, "The group still reads that topic."),
    (ErrorCode.INVALID_RECORD, False, "A record or its batch violates a rule of the topic."),
    (ErrorCode.UNSTABLE_OFFSET_COMMIT, True, "The offset is part of a transaction that has not "
        "ended."),
    (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True, "The request would exceed its quota."),
    (ErrorCode.PRODUCER_FENCED, False, "A newer producer with this transactional id has started."),
    (ErrorCode.RESOURCE_NOT_FOUND, False, "There is no such resource."),
    (ErrorCode.DUPLICATE_RESOURCE, False, "The resource appears twice."),
    (ErrorCode.UNACCEPTABLE_CREDENTIAL, False, "The credential does not meet the rules."),
    (ErrorCode.INCONSISTENT_VOTER_SET, False, "The two sides disagree about the voters."),
    (ErrorCode.INVALID_UPDATE_VERSION, False, "The update was made against an older version."),
    (ErrorCode.FEATURE_UPDATE_FAILED, False, "The features could not be changed."),
    (ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, False, "The principal inside a forwarded "
        "request cannot be read."),
    (ErrorCode.SNAPSHOT_NOT_FOUND, False, "There is no such snapshot."),
    (ErrorCode.POSITION_OUT_OF_RANGE, False, "The position is outside the snapshot."),
    (ErrorCode.UNKNOWN_TOPIC_ID, True, "This node does not host a topic with this id."),
    (ErrorCode.DUPLICATE_BROKER_REGISTRATION, False, "Another running broker has this node id."),
    (ErrorCode.BROKER_ID_NOT_REGISTERED, False, "No broker with this id is registered."),
    (ErrorCode.INCONSISTENT_TOPIC_ID, True, "The topic id differs from that of the log."),
    (ErrorCode.INCONSISTENT_CLUSTER_ID, False, "The request is meant for another cluster."),
    (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, False, "There is no such transactional id."),
    (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, True, "The fetch session mixes requests with and "
        "without topic ids."),
    (ErrorCode.INELIGIBLE_REPLICA, False, "A replica cannot join the in-sync replicas now."),
    (ErrorCode.NEW_LEADER_ELECTED, False, "The change moved the leadership elsewhere."),
    (ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, False, "The offset is in remote storage now."),
    (ErrorCode.FENCED_MEMBER_EPOCH, False, "The group has moved this member to another epoch: "
        "rejoin."),
    (ErrorCode.UNRELEASED_INSTANCE_ID, False, "Another member still uses this static member's id."),
    (ErrorCode.UNSUPPORTED_ASSIGNOR, False, "The group does not offer this assignor."),
    (ErrorCode.STALE_MEMBER_EPOCH, False, "The member's epoch is older than the group's."),
    (ErrorCode.MISMATCHED_ENDPOINT_TYPE, False, "The request asked a controller for brokers, or a "
        "broker for controllers."),
    (ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, False, "This kind of endpoint is not supported."),
    (ErrorCode.UNKNOWN_CONTROLLER_ID, False, "No controller with this id is known."),
    (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, False, "The telemetry subscription is out of date."),
    (ErrorCode.TELEMETRY_TOO_LARGE, False, "The client's metrics are larger than the broker "
        "accepts."),
    (ErrorCode.INVALID_REGISTRATION, False, "The broker's registration is not acceptable."),
    (ErrorCode.TRANSACTION_ABORTABLE, False, "The transaction must be aborted."),
    (ErrorCode.INVALID_RECORD_STATE, False, "The state of the record does not allow this "
        "acknowledgement."),
    (ErrorCode.SHARE_SESSION_NOT_FOUND, True, "The share session no longer exists."),
    (ErrorCode.INVALID_SHARE_SESSION_EPOCH, True, "The share session's epoch is not the next one."),
    (ErrorCode.FENCED_STATE_EPOCH, False, "The share coordinator has a newer state epoch."),
    (ErrorCode.INVALID_VOTER_KEY, False, "The voter's id and directory do not match."),
    (ErrorCode.DUPLICATE_VOTER, False, "The voter is in the set already."),
    (ErrorCode.VOTER_NOT_FOUND, False, "The voter is not in the set."),
    (ErrorCode.INVALID_REGULAR_EXPRESSION, False, "The regular expression cannot be compiled."),
    (ErrorCode.REBOOTSTRAP_REQUIRED, False, "The client must bootstrap again."),
    (ErrorCode.STREAMS_INVALID_TOPOLOGY, False, "The topology of the streams group is not valid."),
    (ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, False, "The topology's epoch is not valid."),
    (ErrorCode.STREAMS_TOPOLOGY_FENCED, False, "The topology's epoch is out of date."),
    (ErrorCode.SHARE_SESSION_LIMIT_REACHED, True, "The broker has the maximum number of share "
        "sessions."),
)
# fmt: on

ERRORS: Mapping[ErrorCode, ErrorInfo] = MappingProxyType(
    {code: ErrorInfo(retriable, sentence) for code, retriable, sentence in _TABLE}
)


LONGEST_SENTENCE = 2000
"""Characters of an error's sentence: it may quote a client's name of 32 KB, and then no string of
the protocol would have room for it."""


class ApiError(Exception):
    """An answer that is an error: a code and the sentence that goes with it on the wire."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        self.code = code
        self.message = message or ERRORS[code].sentence
        if len(self.message) > LONGEST_SENTENCE:
            self.message = self.message[:LONGEST_SENTENCE] + "…"
        super().__init__(self.message)


class ClientFault(ApiError):
    """The client asked for something that cannot be."""


class RecordsRefused(ClientFault):
    """A batch is refused for some of its records: (index in the batch, why), as KIP-467 tells."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]
    ) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


class PeerFault(ApiError):
    """Another node broke a rule of the conversation."""


class StorageFault(Exception):
    """A disk or a store refused; the message names the place and what to do."""


class TooOld(StorageFault):
    """The metadata was written at a level that this version does not know; nothing is wrong with
    it, and a newer version reads it."""


class CorruptStore(StorageFault):
    """The metadata store no longer holds what was committed."""


class CorruptLog(StorageFault):
    """Bytes that were flushed are no longer what was written."""

    def __init__(
        self, message: str, *, path: str, position: int, first_offset: int, last_offset: int
    ) -> None:
        super().__init__(message)
        self.path = path
        self.position = position
        self.first_offset = first_offset
        self.last_offset = last_offset


class Bug(AssertionError):
    """Something that cannot be: a mistake of ours."""


class ProtocolError(Exception):
    """Bytes that are not what they claim to be: the only exception that decoding raises.

    `offset` counts bytes from the start of what was decoded; `field` is empty for the whole.
    """

    def __init__(
        self, message_name: str, version: int, field: str, offset: int, detail: str
    ) -> None:
        super().__init__(message_name, version, field, offset, detail)
        self.message_name = message_name
        self.version = version
        self.field = field
        self.offset = offset
        self.detail = detail

    def __str__(self) -> str:
        field = f", field {self.field}" if self.field else ""
        return f"{self.message_name} v{self.version}{field}, byte {self.offset}: {self.detail}"


def error_code_of(fault: BaseException) -> ErrorCode:
    """The code that answers a request which ended with this exception."""
    if isinstance(fault, ApiError):
        return fault.code
    if isinstance(fault, StorageFault):
        return ErrorCode.KAFKA_STORAGE_ERROR
    if isinstance(fault, ProtocolError):
        return ErrorCode.INVALID_REQUEST
    if isinstance(fault, TimeoutError):
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.UNKNOWN_SERVER_ERROR
