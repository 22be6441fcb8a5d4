"""Every code with which a controller says why it did something, and the sentences about partitions.

What: `Code`, with its meaning, and the makers of reasons that several decisions share: why a
replica left an ISR, why somebody leads or nobody does. Why one table: tools and people search by
code, and a test shows that each one is really said. Rule kept: a sentence is made from state alone,
and names the cause: "broker 2 left the ISR of flights-3: its session expired".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, StrEnum

from anabranch.core.controller.result import Reason
from anabranch.core.metadata.concerns.topics import NO_LEADER_CHANGE
from anabranch.core.metadata.image import RECOVERING, PartitionImage
from anabranch.core.types import NO_LEADER
from anabranch.core.wire.metadata_records import PartitionChangeRecord
from anabranch.core.wire.own_fields import Lag


class Code(StrEnum):
    """What can be said; see CODES."""

    BROKER_REGISTERED = "BROKER_REGISTERED"
    BROKER_STATE_CHANGED = "BROKER_STATE_CHANGED"
    BROKER_SESSION_EXPIRED = "BROKER_SESSION_EXPIRED"
    BROKER_PROCESS_GONE = "BROKER_PROCESS_GONE"
    BROKER_SILENCE_CONFIRMED = "BROKER_SILENCE_CONFIRMED"
    BROKER_UNREGISTERED = "BROKER_UNREGISTERED"
    ISR_CHANGED = "ISR_CHANGED"
    ELR_LEFT = "ELR_LEFT"
    ELR_CLEARED = "ELR_CLEARED"
    LEADER_ELECTED = "LEADER_ELECTED"
    LEADER_ELECTED_UNCLEANLY = "LEADER_ELECTED_UNCLEANLY"
    LEADER_LOST = "LEADER_LOST"
    UNCLEAN_ELECTION_WAITS = "UNCLEAN_ELECTION_WAITS"
    LEADERS_REBALANCED = "LEADERS_REBALANCED"
    OBSERVERS_SET = "OBSERVERS_SET"
    MISSING_REPLICA_FILLED = "MISSING_REPLICA_FILLED"
    REASSIGNMENT_BEGUN = "REASSIGNMENT_BEGUN"
    REASSIGNMENT_DONE = "REASSIGNMENT_DONE"
    REASSIGNMENT_CANCELLED = "REASSIGNMENT_CANCELLED"
    PLAN_CHANGED = "PLAN_CHANGED"
    TOPIC_CREATED = "TOPIC_CREATED"
    TOPIC_DELETED = "TOPIC_DELETED"
    PARTITIONS_ADDED = "PARTITIONS_ADDED"
    CONFIGS_CHANGED = "CONFIGS_CHANGED"
    FEATURE_CHANGED = "FEATURE_CHANGED"
    CONTROLLER_REGISTERED = "CONTROLLER_REGISTERED"
    FOLDER_FAILED = "FOLDER_FAILED"
    FOLDER_FULL = "FOLDER_FULL"
    FOLDER_HAS_ROOM = "FOLDER_HAS_ROOM"
    RACK_STATE_CHANGED = "RACK_STATE_CHANGED"
    ABSENT_BROKER_AWAITED = "ABSENT_BROKER_AWAITED"
    ABSENT_BROKER_GIVEN_UP = "ABSENT_BROKER_GIVEN_UP"
    DISKLESS_RECONCILED = "DISKLESS_RECONCILED"
    DISKLESS_REPLICA_ADDED = "DISKLESS_REPLICA_ADDED"
    DISKLESS_REPLICA_REMOVED = "DISKLESS_REPLICA_REMOVED"
    DISKLESS_REPLICAS_REPAIRED = "DISKLESS_REPLICAS_REPAIRED"
    DISKLESS_FROZEN = "DISKLESS_FROZEN"


CODES: Mapping[Code, str] = {
    Code.BROKER_REGISTERED: "A broker came, new or again, and got its epoch.",
    Code.BROKER_STATE_CHANGED: "A heartbeat moved a broker between fenced, unfenced and leaving.",
    Code.BROKER_SESSION_EXPIRED: "A broker was silent for broker.session.timeout.ms: fenced.",
    Code.BROKER_PROCESS_GONE: "A broker's connection closed; no process, or another one, answered.",
    Code.BROKER_SILENCE_CONFIRMED: "A broker fenced early was silent for a whole session since.",
    Code.BROKER_UNREGISTERED: "A broker was forgotten by request.",
    Code.ISR_CHANGED: "A replica joined or left a partition's in-sync replicas.",
    Code.ELR_LEFT: "A replica is no longer eligible to lead: its records may be lost.",
    Code.ELR_CLEARED: "min.insync.replicas changed, so who is eligible is counted anew.",
    Code.LEADER_ELECTED: "A replica that has every acknowledged record leads.",
    Code.LEADER_ELECTED_UNCLEANLY: "A replica leads that may lack acknowledged records.",
    Code.LEADER_LOST: "No replica can lead.",
    Code.UNCLEAN_ELECTION_WAITS: "No replica leads until silence confirms that the broker is gone.",
    Code.LEADERS_REBALANCED: "Leaderships went back to preferred replicas.",
    Code.OBSERVERS_SET: "Who only observes a partition changed.",
    Code.MISSING_REPLICA_FILLED: "A replica that no broker had was given to one.",
    Code.REASSIGNMENT_BEGUN: "Replicas of a partition began to move.",
    Code.REASSIGNMENT_DONE: "A partition has the replicas that were asked for.",
    Code.REASSIGNMENT_CANCELLED: "A move was taken back before it was done.",
    Code.PLAN_CHANGED: "A plan of moves began, was paused, stopped, went on or ended.",
    Code.TOPIC_CREATED: "A topic was created.",
    Code.TOPIC_DELETED: "A topic was deleted.",
    Code.PARTITIONS_ADDED: "A topic got more partitions.",
    Code.CONFIGS_CHANGED: "Settings of a resource changed.",
    Code.FEATURE_CHANGED: "A feature's level changed.",
    Code.FOLDER_FAILED: "A folder of a broker failed: what lies there has other leaders.",
    Code.FOLDER_FULL: "A folder of a broker has no room: others with room lead what lies there.",
    Code.FOLDER_HAS_ROOM: "A folder of a broker has room again: what lies there is copied again.",
    Code.RACK_STATE_CHANGED: "A rack became HEALTHY, DEGRADED or UNAVAILABLE for diskless topics.",
    Code.ABSENT_BROKER_AWAITED: "A broker is unreachable: its diskless replicas stay for a while.",
    Code.ABSENT_BROKER_GIVEN_UP: "A broker was unreachable for too long: its diskless replicas go.",
    Code.DISKLESS_RECONCILED: "Diskless partitions came nearer to one replica a rack.",
    Code.DISKLESS_REPLICA_ADDED: "A diskless partition got a replica in a rack; no bytes move.",
    Code.DISKLESS_REPLICA_REMOVED: "A diskless partition gave a replica up; no bytes move.",
    Code.DISKLESS_REPLICAS_REPAIRED: "A diskless partition was written as a classic one is.",
    Code.DISKLESS_FROZEN: "Diskless partitions stay as they are: auto-reconcile is off.",
    Code.CONTROLLER_REGISTERED: "A controller said where it is and what it supports.",
}
"""What each code means."""


class Cause(Enum):
    """What happened to a broker, said of it."""

    SESSION_EXPIRED = "its session expired"
    PROCESS_GONE = "its process is gone"
    ASKED = "it asked to be fenced"
    SHUTS_DOWN = "it shuts down"
    RESTARTED = "it was restarted"
    RESTARTED_UNCLEANLY = "it was restarted without having stopped in order"
    FOLDERS_OLDER = "it was started on an older copy of its folders"
    UNREGISTERED = "it was unregistered"
    RETURNED = "it is back"
    FOLDER_FAILED = "its folder failed"
    LOG_UNUSABLE = "it cannot open or read the log"
    NO_ROOM = "its folder has no room"


NOTHING_LEFT = frozenset({Cause.RESTARTED_UNCLEANLY, Cause.FOLDERS_OLDER, Cause.UNREGISTERED})
"""What makes a replica no longer eligible to lead."""


def partition_reasons(
    place: str,
    before: PartitionImage,
    record: PartitionChangeRecord,
    broker_id: int,
    cause: Cause,
    *,
    waits: bool,
) -> Iterator[Reason]:
    """Why a broker's fate changed a partition. `place` is topic and index, "flights-3".

    `waits` says that an unclean election is allowed and held back.
    """
    details = {"partition": place, "broker_id": broker_id, "cause": cause.name}
    if record.isr is not None and broker_id in before.isr and broker_id not in record.isr:
        yield Reason(
            Code.ISR_CHANGED, f"broker {broker_id} left the ISR of {place}: {cause.value}", details
        )
    if cause in NOTHING_LEFT and broker_id in before.elr:
        yield Reason(
            Code.ELR_LEFT,
            f"broker {broker_id} is no longer eligible to lead {place}: {cause.value}",
            details,
        )
    if record.leader != NO_LEADER_CHANGE:
        because = f"broker {broker_id}: {cause.value}"
        yield leader_reason(place, before, record, because, details, waits=waits)


def moved_reasons(place: str, before: PartitionImage, after: PartitionImage) -> Iterator[Reason]:
    """That a change ended a move of replicas, if it did."""
    if not (before.adding or before.removing) or after.adding or after.removing:
        return
    names = ", ".join(map(str, after.replicas))
    went = ", ".join(map(str, before.removing)) or "nobody"
    in_sync = "all in sync"
    if not set(after.replicas) <= set(after.isr):
        in_sync = f"of which {', '.join(map(str, after.isr))} are in sync"
    yield Reason(
        Code.REASSIGNMENT_DONE,
        f"the move of {place} is done: its replicas are {names}, {in_sync}, and {went} left",
        {"partition": place, "to": list(after.replicas)},
    )


def leader_reason(
    place: str,
    before: PartitionImage,
    record: PartitionChangeRecord,
    because: str,
    details: Mapping[str, object],
    *,
    waits: bool = False,
) -> Reason:
    """Who leads after a record that names a leader, and why."""
    if record.leader == NO_LEADER and waits:
        return Reason(
            Code.UNCLEAN_ELECTION_WAITS,
            f"{place} has no leader ({because}); an unclean election waits for a whole session of "
            "silence",
            details,
        )
    if record.leader == NO_LEADER:
        return Reason(Code.LEADER_LOST, f"no replica can lead {place} ({because})", details)
    details = {**details, "leader": record.leader}
    is_unclean = RECOVERING in (record.leader_recovery_state, before.recovery_state)
    if is_unclean and record.leader not in (*before.isr, *before.elr):
        return Reason(
            Code.LEADER_ELECTED_UNCLEANLY,
            f"broker {record.leader} leads {place} and may lack acknowledged records ({because})",
            details,
        )
    return Reason(Code.LEADER_ELECTED, f"broker {record.leader} leads {place} ({because})", details)


def isr_reasons(
    place: str, leader: int, before: Sequence[int], after: Sequence[int], lags: Sequence[Lag]
) -> Iterator[Reason]:
    """Why a leader changed its ISR: a sentence for each follower whose lag it told, and one for all
    others that joined or left."""
    joined, left = sorted(set(after) - set(before)), sorted(set(before) - set(after))
    told = {lag.broker_id: lag for lag in lags if lag.broker_id in left}
    for broker_id in sorted(told):
        yield Reason(
            Code.ISR_CHANGED,
            f"broker {broker_id} left the ISR of {place}: {_lag(told[broker_id])}",
            {"partition": place, "leader": leader, "left": [broker_id]},
        )
    left = [each for each in left if each not in told]
    if told and not joined and not left:
        return
    said = [f"{_named(joined)} joined"] * bool(joined) + [f"{_named(left)} left"] * bool(left)
    yield Reason(
        Code.ISR_CHANGED,
        f"{' and '.join(said) or 'nobody joined or left'} the ISR of {place}: its leader, broker "
        f"{leader}, asked for it",
        {"partition": place, "leader": leader, "joined": joined, "left": left},
    )


def _lag(lag: Lag) -> str:
    """How a follower fell behind, in tenths of a second."""
    if lag.silent_ms >= lag.behind_ms:
        return f"no fetch for {lag.behind_ms / 1000:.1f} s"
    return f"it fetches, and was not caught up for {lag.behind_ms / 1000:.1f} s"


def _named(brokers: Sequence[int]) -> str:
    return ("broker " if len(brokers) == 1 else "brokers ") + " and ".join(map(str, brokers))
