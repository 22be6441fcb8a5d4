"""Acknowledged records that are gone, and the rule that allowed each.

What: at the end each record that a broker acknowledged is looked for: in the log of who leads its
partition, or, without a leader, in every log of it. What is nowhere is lost. The rule is found
from what was seen: was the record committed, was the leader elected uncleanly, did disks lose what
they had not synced.

Rule kept: a loss without a rule is said to have none. That is a broken promise, and the rehearsal
fails. Not here: whether the invariants held on the way (`sim/checks`).
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.errors import ApiError, StorageFault
from anabranch.core.replication.replica import Replica
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import decode_records
from anabranch.sim.rehearsal.answers import Loss, Place
from anabranch.sim.rehearsal.probe import Probe
from anabranch.sim.rehearsal.producer import Sent

READ_BYTES = 1 << 20
FAR = 1 << 62

ONLY_THE_LEADER = (
    "acks=1 waits only for the leader, and the leader failed before another replica had the record"
)
NO_PROMISE = "acks=0 guarantees nothing"
UNCLEAN_ELECTION = (
    "an unclean election (by unclean.leader.election.enable or an operator) made a replica leader "
    "that lacked the records"
)
POWER = "so many replicas lost power that every possible leader lacked unsynced records"
DISKS = "so many replicas lost their disks that no possible leader had the records"


def values_of(replica: Replica) -> dict[int, bytes]:
    """Offset -> value of everything in a log; what cannot be read is not there."""
    log, found = replica.log, dict[int, bytes]()
    offset, end = log.local_start_offset, log.end_offset
    while offset < end:
        try:
            chunk = log.read(offset, max_bytes=READ_BYTES, upto=FAR, at_least_one=True)
            if not chunk:
                break
            for position, header in walk(chunk):
                for record in decode_records(chunk, position):
                    found[record.offset] = record.value or b""
                offset = header.next_offset
        except (ApiError, StorageFault):
            break
    return found


def losses(probe: Probe, sent: Iterable[Sent]) -> list[Loss]:
    """What is lost of what was acknowledged, by partition, acks and rule."""
    kept: dict[Place, list[dict[int, bytes]]] = {}
    gone: dict[tuple[Place, int, str], list[int]] = {}
    for batch in sent:
        if not batch.is_acknowledged:
            continue
        if batch.place not in kept:
            kept[batch.place] = _logs(probe, batch.place)
        for index, value in enumerate(batch.values):
            offset = batch.base_offset + index
            if not any(log.get(offset) == value for log in kept[batch.place]):
                rule = _rule(probe, batch, offset)
                gone.setdefault((batch.place, batch.acks, rule), []).append(offset)
    return [
        Loss(place, tuple(sorted(offsets)), acks, rule)
        for (place, acks, rule), offsets in sorted(gone.items())
    ]


def _logs(probe: Probe, place: Place) -> list[dict[int, bytes]]:
    if place[0] in probe.diskless:
        return [probe.stored(place)]
    leader = probe.serving_leader(place)
    if leader is not None:
        return [values_of(leader)]
    found = (probe.replica(each, place) for each in probe.states[place].replicas)
    return [values_of(each) for each in found if each is not None]


def _rule(probe: Probe, batch: Sent, offset: int) -> str:
    if batch.place[0] in probe.diskless:
        return ""  # what is committed to storage may not be lost, whatever `acks` said
    committed = probe.was_committed(batch.place, offset, batch.told_us)
    if not committed and batch.acks == 0:
        return NO_PROMISE
    if not committed and batch.acks == 1:
        return ONLY_THE_LEADER
    harm = _harm(probe, batch.place)
    was_unclean = any(move.how and move.place == batch.place for move in probe.moves)
    return UNCLEAN_ELECTION if was_unclean and not harm else harm


def _harm(probe: Probe, place: Place) -> str:
    """The rule, when so many replicas lost power or disks that the last copies were theirs."""
    replica = next(
        (found for each in probe.states[place].replicas if (found := probe.replica(each, place))),
        None,
    )
    replicas = probe.states[place].replicas
    hurt = [(what, broker) for _, what, broker in probe.harm if broker in replicas]
    if replica is None or len({broker for _, broker in hurt}) < replica.required_in_sync:
        return ""
    return DISKS if any(what == "wipe" for what, _ in hurt) else POWER
