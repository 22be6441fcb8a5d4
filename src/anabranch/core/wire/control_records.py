"""Values of the control records that a Raft log carries: leader change, snapshot ends, voters.

Their keys and their batches are in control.py. The schema version of each stands in its first field
too (KIP-595, KIP-630, KIP-853). Of two structures that Kafka calls Voter, the one inside
VotersRecord is VotersVoter here.
"""

from __future__ import annotations

from typing import Annotated

from anabranch.core.wire.schema import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uint16,
    Uuid,
)


class Voter(Struct):
    """A voter, as a leader change names it."""

    voter_id: Int32 = 0
    voter_directory_id: Annotated[Uuid, "1+"] = ZERO_UUID


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """A leader was elected, and by whom."""

    version: Int16 = 0
    leader_id: Int32 = 0
    voters: list[Voter] = []
    granting_voters: list[Voter] = []


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """A snapshot starts."""

    version: Int16 = 0
    last_contained_log_timestamp: Int64 = 0


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """A snapshot ends."""

    version: Int16 = 0


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The version of the quorum's own protocol."""

    version: Int16 = 0
    k_raft_version: Int16 = 0


class Endpoint(Struct):
    """Where a voter listens."""

    name: String = ""
    host: String = ""
    port: Uint16 = 0


class KRaftVersionFeature(Struct, constant=True):
    """The protocol versions that a voter knows."""

    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class VotersVoter(Struct):
    """A voter, as the set of voters names it."""

    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    endpoints: list[Endpoint] = []
    k_raft_version_feature: KRaftVersionFeature = KRaftVersionFeature()


class VotersRecord(Message, versions="0", flexible="0+"):
    """The set of voters."""

    version: Int16 = 0
    voters: list[VotersVoter] = []
