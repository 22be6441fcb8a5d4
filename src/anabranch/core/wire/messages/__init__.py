"""Which requests exist: API key, name, versions. One module a message family, imported when used.

The rule it keeps: importing this package imports no family, so that a node pays at start only for
the requests that somebody sends. Versions are those that Apache Kafka 4.1 serves; of
WriteTxnMarkers, which brokers send one another, also the version that came with Kafka 4.2. Keys
from 10,000 on are Anabranch's own.
"""

from __future__ import annotations

import re
from functools import cached_property
from importlib import import_module
from types import MappingProxyType

from anabranch.core.wire.schema import Message


class ApiSpec:
    """One API key: its name, its versions, and where its two message classes are."""

    def __init__(self, api_key: int, name: str, versions: range, flexible_from: int) -> None:
        self.api_key = api_key
        self.name = name
        self.versions = versions
        self.flexible_from = flexible_from

    @property
    def module(self) -> str:
        """The module name of the family: `list_offsets` for ListOffsets."""
        return re.sub(r"(?<!^)([A-Z])", r"_\1", self.name).lower()

    @cached_property
    def request(self) -> type[Message]:
        """The request's class; imports the family."""
        return self._class("Request")

    @cached_property
    def response(self) -> type[Message]:
        """The response's class; imports the family."""
        return self._class("Response")

    def _class(self, suffix: str) -> type[Message]:
        family = import_module(f"{__name__}.{self.module}")
        cls: type[Message] = getattr(family, self.name + suffix)
        return cls

    def __repr__(self) -> str:
        return f"ApiSpec({self.api_key}, {self.name}, {self.versions})"


NEVER = 32_768
"""First flexible version of a family that has none."""

_TABLE = (
    # API key, name, versions, first flexible version
    (0, "Produce", range(3, 14), 9),
    (1, "Fetch", range(4, 19), 12),
    (2, "ListOffsets", range(1, 11), 6),
    (3, "Metadata", range(14), 9),
    (8, "OffsetCommit", range(2, 10), 8),
    (9, "OffsetFetch", range(1, 10), 6),
    (10, "FindCoordinator", range(7), 3),
    (11, "JoinGroup", range(10), 6),
    (12, "Heartbeat", range(5), 4),
    (13, "LeaveGroup", range(6), 4),
    (14, "SyncGroup", range(6), 4),
    (15, "DescribeGroups", range(7), 5),
    (16, "ListGroups", range(6), 3),
    (17, "SaslHandshake", range(2), NEVER),
    (18, "ApiVersions", range(5), 3),
    (19, "CreateTopics", range(2, 8), 5),
    (20, "DeleteTopics", range(1, 7), 4),
    (21, "DeleteRecords", range(3), 2),
    (22, "InitProducerId", range(6), 2),
    (23, "OffsetForLeaderEpoch", range(2, 5), 4),
    (24, "AddPartitionsToTxn", range(6), 3),
    (25, "AddOffsetsToTxn", range(5), 3),
    (26, "EndTxn", range(6), 3),
    (27, "WriteTxnMarkers", range(1, 3), 1),
    (28, "TxnOffsetCommit", range(6), 3),
    (29, "DescribeAcls", range(1, 4), 2),
    (30, "CreateAcls", range(1, 4), 2),
    (31, "DeleteAcls", range(1, 4), 2),
    (32, "DescribeConfigs", range(1, 5), 4),
    (33, "AlterConfigs", range(3), 2),
    (34, "AlterReplicaLogDirs", range(1, 3), 2),
    (35, "DescribeLogDirs", range(1, 5), 2),
    (36, "SaslAuthenticate", range(3), 2),
    (37, "CreatePartitions", range(4), 2),
    (38, "CreateDelegationToken", range(1, 4), 2),
    (39, "RenewDelegationToken", range(1, 3), 2),
    (40, "ExpireDelegationToken", range(1, 3), 2),
    (41, "DescribeDelegationToken", range(1, 4), 2),
    (42, "DeleteGroups", range(3), 2),
    (43, "ElectLeaders", range(3), 2),
    (44, "IncrementalAlterConfigs", range(2), 1),
    (45, "AlterPartitionReassignments", range(2), 0),
    (46, "ListPartitionReassignments", range(1), 0),
    (47, "OffsetDelete", range(1), NEVER),
    (48, "DescribeClientQuotas", range(2), 1),
    (49, "AlterClientQuotas", range(2), 1),
    (50, "DescribeUserScramCredentials", range(1), 0),
    (51, "AlterUserScramCredentials", range(1), 0),
    (55, "DescribeQuorum", range(3), 0),
    (56, "AlterPartition", range(2, 4), 0),
    (57, "UpdateFeatures", range(3), 0),
    (58, "Envelope", range(1), 0),
    (59, "FetchSnapshot", range(2), 0),
    (60, "DescribeCluster", range(3), 0),
    (61, "DescribeProducers", range(1), 0),
    (62, "BrokerRegistration", range(5), 0),
    (63, "BrokerHeartbeat", range(2), 0),
    (64, "UnregisterBroker", range(1), 0),
    (65, "DescribeTransactions", range(1), 0),
    (66, "ListTransactions", range(3), 0),
    (67, "AllocateProducerIds", range(1), 0),
    (70, "ControllerRegistration", range(1), 0),
    (71, "GetTelemetrySubscriptions", range(1), 0),
    (72, "PushTelemetry", range(1), 0),
    (73, "AssignReplicasToDirs", range(1), 0),
    (74, "ListConfigResources", range(2), 0),
    (75, "DescribeTopicPartitions", range(1), 0),
    (10000, "PlanSegments", range(1), 0),
    (10001, "TierSegment", range(1), 0),
    (10002, "PlanCompaction", range(1), 0),
    (10003, "CompactSegment", range(1), 0),
)

API_KEYS = MappingProxyType({row[0]: ApiSpec(*row) for row in _TABLE})
"""Every API key whose messages Anabranch can read and write."""
FIRST_OWN_KEY = 10_000
"""From here on requests are Anabranch's own; Kafka has none of these keys."""
