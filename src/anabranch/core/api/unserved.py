"""Names of Kafka's requests that no node answers, for the log line about a client that sends one.

Source: the request schemas of Kafka 4.1. Rule kept: a request that gets a handler leaves this table
(`tests/core/api/test_unserved.py`). Not here: features that the answered requests lack (`skipped`
of each handler).
"""

from __future__ import annotations

from types import MappingProxyType

UNSERVED = MappingProxyType(
    {
        52: "Vote",
        53: "BeginQuorumEpoch",
        54: "EndQuorumEpoch",
        68: "ConsumerGroupHeartbeat",
        69: "ConsumerGroupDescribe",
        76: "ShareGroupHeartbeat",
        77: "ShareGroupDescribe",
        78: "ShareFetch",
        79: "ShareAcknowledge",
        80: "AddRaftVoter",
        81: "RemoveRaftVoter",
        82: "UpdateRaftVoter",
        83: "InitializeShareGroupState",
        84: "ReadShareGroupState",
        85: "WriteShareGroupState",
        86: "DeleteShareGroupState",
        87: "ReadShareGroupStateSummary",
        88: "StreamsGroupHeartbeat",
        89: "StreamsGroupDescribe",
        90: "DescribeShareGroupOffsets",
        91: "AlterShareGroupOffsets",
        92: "DeleteShareGroupOffsets",
    }
)
"""By API key."""


def named(api_key: int, served_name: str = "") -> str:
    """An API key for people: with its name, if Kafka 4.1 has one."""
    name = served_name or UNSERVED.get(api_key, "")
    return f"API key {api_key} ({name})" if name else f"API key {api_key}"
