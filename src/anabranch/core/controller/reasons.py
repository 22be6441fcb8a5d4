"""Every code with which a controller says why it did something, and the sentences about partitions.

What: `Code`, with its meaning, and the makers of reasons that several decisions share: why a
replica left an ISR, why somebody leads or nobody does. Why one table: tools and people search by
code, and a test shows that each one is really said. Rule kept: a sentence is made from state alone,
and names the cause: "broker 2 left the ISR of flights-3: its session expired".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from itertools import groupby
from typing import TypeVar

from anabranch.core.controller.result import Reason
from anabranch.core.metadata.concerns.topics import NO_LEADER_CHANGE
from anabranch.core.metadata.image import RECOVERING, PartitionImage
from anabranch.core.sentences import number_of
from anabranch.core.types import NO_LEADER
from anabranch.core.wire.metadata_records import PartitionChangeRecord
from anabranch.core.wire.own_fields import Lag

T = TypeVar("T")
FEWEST_FOLDED = 4
PLACE = "\0"
"""Stands in a sentence for its partition; no sentence has one."""


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
    MIGRATION_STEPPED = "MIGRATION_STEPPED"
    CONFIGS_CHANGED = "CONFIGS_CHANGED"
    ACLS_CHANGED = "ACLS_CHANGED"
    QUOTAS_CHANGED = "QUOTAS_CHANGED"
    USERS_CHANGED = "USERS_CHANGED"
    TOKENS_CHANGED = "TOKENS_CHANGED"
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
    DISKLESS_PREFERRED_LEADER_CHANGED = "DISKLESS_PREFERRED_LEADER_CHANGED"
    DISKLESS_REPLICA_REPLACED = "DISKLESS_REPLICA_REPLACED"
    DISKLESS_REPLICAS_REPAIRED = "DISKLESS_REPLICAS_REPAIRED"
    DISKLESS_FROZEN = "DISKLESS_FROZEN"


CODES: Mapping[Code, str] = {
    Code.BROKER_REGISTERED: "A broker registered and got its epoch.",
    Code.BROKER_STATE_CHANGED: "A heartbeat changed the state of a broker: fenced, unfenced or "
    "shutting down.",
    Code.BROKER_SESSION_EXPIRED: "A broker sent no heartbeat for broker.session.timeout.ms and "
    "was fenced.",
    Code.BROKER_PROCESS_GONE: "A broker's connection closed, and no process, or another one, "
    "answered at its address.",
    Code.BROKER_SILENCE_CONFIRMED: "A broker that was fenced early has sent no heartbeat for a "
    "whole session.",
    Code.BROKER_UNREGISTERED: "A broker was unregistered by request.",
    Code.ISR_CHANGED: "A replica joined or left a partition's in-sync replicas.",
    Code.ELR_LEFT: "A replica is no longer eligible to lead, because it may have lost records.",
    Code.ELR_CLEARED: "min.insync.replicas changed, so the eligible leader replicas were cleared.",
    Code.LEADER_ELECTED: "A replica that has every acknowledged record became leader.",
    Code.LEADER_ELECTED_UNCLEANLY: "A replica that may lack acknowledged records became leader.",
    Code.LEADER_LOST: "No replica can lead.",
    Code.UNCLEAN_ELECTION_WAITS: "No leader is elected until a whole session without a heartbeat "
    "confirms that the broker is gone.",
    Code.LEADERS_REBALANCED: "Leaderships returned to preferred replicas.",
    Code.OBSERVERS_SET: "The observers of a partition changed.",
    Code.MISSING_REPLICA_FILLED: "A missing replica was assigned to a broker.",
    Code.REASSIGNMENT_BEGUN: "A move of a partition started.",
    Code.REASSIGNMENT_DONE: "A move of a partition is complete.",
    Code.REASSIGNMENT_CANCELLED: "A move was cancelled before it was complete.",
    Code.PLAN_CHANGED: "A plan of moves started, was paused, stopped, resumed or ended.",
    Code.TOPIC_CREATED: "A topic was created.",
    Code.TOPIC_DELETED: "A topic was deleted.",
    Code.PARTITIONS_ADDED: "A topic got more partitions.",
    Code.MIGRATION_STEPPED: "A classic topic went a step towards being diskless, or a step back.",
    Code.CONFIGS_CHANGED: "Settings of a resource changed.",
    Code.ACLS_CHANGED: "Access rules (ACLs) were added or removed.",
    Code.QUOTAS_CHANGED: "Client quotas were set or removed.",
    Code.USERS_CHANGED: "Credentials of users were set or removed.",
    Code.TOKENS_CHANGED: "Delegation tokens were made, renewed or removed.",
    Code.FEATURE_CHANGED: "A feature's level changed.",
    Code.FOLDER_FAILED: "A folder of a broker failed; its partitions have other leaders.",
    Code.FOLDER_FULL: "A folder of a broker has no space; brokers with space lead its partitions.",
    Code.FOLDER_HAS_ROOM: "A folder of a broker has space again; its replicas are copied again.",
    Code.RACK_STATE_CHANGED: "A rack became HEALTHY, DEGRADED or UNAVAILABLE for diskless topics.",
    Code.ABSENT_BROKER_AWAITED: "A broker is unreachable; its diskless replicas stay until the "
    "threshold.",
    Code.ABSENT_BROKER_GIVEN_UP: "A broker was unreachable for longer than the threshold; its "
    "diskless replicas are removed.",
    Code.DISKLESS_RECONCILED: "Diskless partitions came closer to one replica in each rack.",
    Code.DISKLESS_REPLICA_ADDED: "A diskless partition got a replica in a rack; no records move.",
    Code.DISKLESS_REPLICA_REMOVED: "A replica of a diskless partition was removed; no records "
    "move.",
    Code.DISKLESS_PREFERRED_LEADER_CHANGED: "Another replica of a diskless partition is preferred "
    "to lead, so that brokers lead evenly.",
    Code.DISKLESS_REPLICA_REPLACED: "A diskless partition without a living replica got one, "
    "although auto-reconcile is off.",
    Code.DISKLESS_REPLICAS_REPAIRED: "A diskless partition was recorded like a classic one.",
    Code.DISKLESS_FROZEN: "Diskless partitions are not changed, because auto-reconcile is off.",
    Code.CONTROLLER_REGISTERED: "A controller registered with its address and supported features.",
}
"""What each code means."""


class Cause(Enum):
    """What happened to a broker, said of it."""

    SESSION_EXPIRED = "its session expired"
    PROCESS_GONE = "its process is gone"
    ASKED = "it asked to be fenced"
    SHUTS_DOWN = "it shuts down"
    RESTARTED = "it was restarted"
    RESTARTED_UNCLEANLY = "it was restarted after an unclean stop"
    FOLDERS_OLDER = "it was started on an older copy of its folders"
    UNREGISTERED = "it was unregistered"
    RETURNED = "it is back"
    FOLDER_FAILED = "its folder failed"
    LOG_UNUSABLE = "it cannot open or read the log"
    NO_ROOM = "its folder has no space"


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
    went = ", ".join(map(str, before.removing)) or "none"
    in_sync = "all in sync"
    if not set(after.replicas) <= set(after.isr):
        in_sync = f"of which {', '.join(map(str, after.isr))} are in sync"
    yield Reason(
        Code.REASSIGNMENT_DONE,
        f"the move of {place} is complete: its replicas are {names}, {in_sync}, and {went} left",
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
            f"{place} has no leader ({because}); an unclean election waits for a whole session "
            "without a heartbeat",
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


def folded(
    said: Iterable[T],
    of: Callable[[T], tuple[str, str, str]],
    is_cut: Callable[[T], bool] = lambda _: False,
) -> Iterator[tuple[T, str]]:
    """What was said, the last of those in a row that differ only in their partition, and for all of
    them one sentence: a broker that returns is one event, however many partitions it has. So are
    several things about each partition: those that left an ISR, then those without a leader. `of`
    gives code, partition ("flights-3", or empty) and sentence; `is_cut`, whether more was said
    at that time than is left."""
    for kinds, alike in groupby(_by_place(said, of), lambda row: _kinds(row, of)):
        rows = list(alike)
        if len(rows) < FEWEST_FOLDED or any(PLACE not in sentence for _, sentence in kinds):
            yield from ((each, of(each)[2]) for row in rows for each in row)
            continue
        more = " or more" if is_cut(rows[-1][-1]) else ""
        places = f"{number_of(len(rows), 'partition')}{more}, {of(rows[0][0])[1]} first"
        for at, (_, said_of_all) in enumerate(kinds):
            yield rows[-1][at], said_of_all.replace(PLACE, places)


def _by_place(said: Iterable[T], of: Callable[[T], tuple[str, str, str]]) -> Iterator[list[T]]:
    """What was said of one partition after the other; what is about none stands alone."""
    for place, alike in groupby(said, lambda each: of(each)[1]):
        row = list(alike)
        yield from [row] if place else ([each] for each in row)


def _kinds(row: list[T], of: Callable[[T], tuple[str, str, str]]) -> tuple[tuple[str, str], ...]:
    """What is said of a partition, but for its name."""
    return tuple(_but_for_the_place(*of(each)) for each in row)


def _but_for_the_place(code: str, place: str, sentence: str) -> tuple[str, str]:
    """What reasons have in common that can be told as one; one that begins with its partition
    stays as it is."""
    if not place or sentence.startswith(place):
        return code, sentence
    return code, sentence.replace(place, PLACE, 1)


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
        f"{' and '.join(said) or 'no replica joined or left'} the ISR of {place}: its leader, "
        "broker "
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
