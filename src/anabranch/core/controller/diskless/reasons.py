"""What is said of diskless replicas that come, go, or stay where they are.

Rule kept: a sentence is made from state alone and names the cause, as in
`core/controller/reasons.py`; each says that no bytes move where something moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from anabranch.core.controller.diskless.racks import RackState
from anabranch.core.controller.reasons import Code, leader_reason
from anabranch.core.controller.result import Reason
from anabranch.core.metadata.concerns.topics import NO_LEADER_CHANGE
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.core.controller.cluster_state import ClusterState
    from anabranch.core.controller.diskless.racks import Racks
    from anabranch.core.controller.diskless.reconciliation import Step
    from anabranch.core.metadata.image import PartitionImage
    from anabranch.core.wire.metadata_records import BrokerAbsence, PartitionChangeRecord

FOLLOWS = {
    RackState.HEALTHY: "one of its brokers can get replicas",
    RackState.DEGRADED: "none of its brokers can get replicas; existing ones stay",
    RackState.UNAVAILABLE: "all its brokers are unavailable; its diskless replicas are removed",
}


def absence_reasons(
    state: ClusterState, absences: Sequence[BrokerAbsence], threshold_ms: int
) -> Iterator[Reason]:
    """That brokers are waited for, or given up."""
    for each in absences:
        count = len(state.diskless.on.get(each.broker_id, ()))
        if not count:
            continue  # of its rack more is said
        who = f"broker {each.broker_id} (rack {each.rack or 'unknown'})"
        details = {"broker_id": each.broker_id, "replicas": count, "threshold_ms": threshold_ms}
        if each.is_gone:
            yield Reason(
                Code.ABSENT_BROKER_GIVEN_UP,
                f"{who} was unreachable for more than {threshold_ms} ms: "
                f"{number_of(count, 'diskless replica')} of its rack to move or to remove",
                details,
            )
        elif each.elapsed_ms == 0:
            yield Reason(
                Code.ABSENT_BROKER_AWAITED,
                f"{who} is unreachable: it keeps {number_of(count, 'diskless replica')} for "
                f"{threshold_ms} ms",
                details,
            )


def rack_reasons(before: Racks, after: Racks) -> Iterator[Reason]:
    """Racks that came, went, or are in another state."""
    for name in sorted(before.by_name.keys() | after.by_name.keys()):
        was, now = before.by_name.get(name), after.by_name.get(name)
        if now is None:
            yield _of_rack(name, f"rack {name} is removed: none of its brokers is registered")
        elif was is None or was.state is not now.state:
            sentence = f"rack {name} is {now.state.name}: {FOLLOWS[now.state]}"
            yield _of_rack(name, f"{sentence}; effective replication factor {len(after.target)}")


def _of_rack(name: str, sentence: str) -> Reason:
    return Reason(Code.RACK_STATE_CHANGED, sentence, {"rack": name})


def summary(count: int) -> Reason:
    """What one batch does."""
    return Reason(
        Code.DISKLESS_RECONCILED,
        f"closer to one replica in each rack: {number_of(count, 'diskless partition')}; no "
        "records move",
        {"count": count},
    )


def was_stepped(
    place: str,
    before: PartitionImage,
    step: Step,
    record: PartitionChangeRecord,
    racks: Racks,
) -> Iterator[Reason]:
    """A step of one partition, and whom it made leader."""
    details = {"partition": place, "from": list(before.replicas), "to": list(step.row)}
    if step.came and step.went:
        sentence = (
            f"{place} had no living replica: broker {step.came[0]} replaces broker {step.went[0]} "
            f"of rack {racks.rack_of[step.came[0]]}, although diskless.managed.rf.auto.reconcile "
            "is false"
        )
        yield Reason(Code.DISKLESS_REPLICA_REPLACED, sentence, details)
    elif step.came:
        names = ", ".join(f"{each} (rack {racks.rack_of[each]})" for each in step.came)
        sentence = f"{place} gets a replica on broker {names}, the least loaded of the rack"
        yield Reason(Code.DISKLESS_REPLICA_ADDED, sentence, details)
    else:
        names = ", ".join(f"{each}, {_why(each, racks)}" for each in step.went)
        sentence = f"{place} loses the replica on broker {names}"
        yield Reason(Code.DISKLESS_REPLICA_REMOVED, sentence, details)
    yield from _prefers(place, before, step, details)
    yield from _leads(place, before, record, "its replicas changed")


def _prefers(
    place: str, before: PartitionImage, step: Step, details: Mapping[str, object]
) -> Iterator[Reason]:
    """That another replica is the preferred leader now."""
    was, now = before.replicas[0], step.row[0]
    if was == now or (step.came and step.went):
        return
    because = "it was removed" if was in step.went else "it is preferred by more partitions"
    yield Reason(
        Code.DISKLESS_PREFERRED_LEADER_CHANGED,
        f"{place} prefers broker {now} as its leader instead of broker {was}: {because}",
        details,
    )


def was_repaired(
    place: str, before: PartitionImage, record: PartitionChangeRecord
) -> Iterator[Reason]:
    """A partition that was not written as diskless ones are."""
    yield Reason(
        Code.DISKLESS_REPLICAS_REPAIRED,
        f"{place} was recorded like a classic partition: all its replicas are in sync",
        {"partition": place},
    )
    yield from _leads(place, before, record, "one of its replicas is alive")


def frozen_reason(count: int, unled: int) -> Reason:
    """That nothing is done although something should be; `unled` have no leader."""
    said = []
    if count:
        said.append(
            f"not one replica in each rack: {number_of(count, 'diskless partition')}, and "
            "diskless.managed.rf.auto.reconcile is false"
        )
    if unled:
        said.append(
            f"without a leader: {number_of(unled, 'diskless partition')}, because no broker of "
            "the replicas' "
            "racks can get a replica"
        )
    details = {"count": count, "without_leader": unled}
    return Reason(Code.DISKLESS_FROZEN, "; ".join(said), details)


def _why(broker_id: int, racks: Racks) -> str:
    name = racks.rack_of.get(broker_id)
    if name is None:
        return "because it is not registered"
    if racks.state(broker_id) is RackState.UNAVAILABLE:
        return f"because rack {name} is unavailable"
    return f"because rack {name} has another"


def _leads(
    place: str, before: PartitionImage, record: PartitionChangeRecord, because: str
) -> Iterator[Reason]:
    if record.leader != NO_LEADER_CHANGE:
        yield leader_reason(place, before, record, because, {"partition": place})
