"""Computed replica assignment: one endless sequence of lists, and every topic takes the next ones.

Goals: brokers even within a topic and from topic to topic. Constraints: either every broker has a
rack or none has (or racks are to be ignored); fenced brokers take part like others. Guarantees: the
lists depend on the brokers' ids, their racks and the index alone; distinct brokers in a partition.

Without racks, N brokers in the order of their ids and G = N - RF + 1 gaps: list i is led by broker
i mod N, and between the leader and its first follower floor(i / N) mod G brokers are left out; the
other followers are neighbours. Worked example, brokers 0 to 4, RF 3: list 0 is [0, 1, 2], list 5
is [0, 2, 3], list 8 is [3, 0, 1], and the next topic begins with list 9: [4, 1, 2]. After N x G
lists all begins anew; in that time each broker leads G lists and is in RF x G.

With racks, three stages. Matrix: a row a rack, its brokers by id, the largest rack on top, equal
ones by label. Sequence: diagonals from top to bottom; a short row goes round, a broker that was
taken is passed over. Lists: list i is RF neighbours of the sequence, from place i on. Worked
example, a: 0, b: 1 2, c: 3 4 5: the sequence is 3, 2, 0, 4, 1, 5, and list 0 is [3, 2, 0].

Trade-off: brokers stay even also where racks differ in size, and then one partition may have two
replicas in one rack although other racks are free: such partitions are named in the remarks. With
racks there are no gaps, so the same M lists come again and again.

Source: Fluvio's replica assignment; every number of its documentation is a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice, repeat
from random import Random

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.placement.placer import Ask, Placement, UsableBroker

MOST_NAMED = 10
"""Partitions that a remark names before it only counts."""

Row = tuple[int, ...]


def computed(brokers: Sequence[UsableBroker], ask: Ask, rng: Random) -> Placement:
    """The next lists of the sequence, from `ask.cursor` on; a topic that grows goes on where it
    ended, if its lists are those of the sequence. Raises ClientFault INVALID_REQUEST."""
    racks = {} if ask.ignore_racks else _racks(brokers)
    if racks:
        leaders = rack_sequence(racks)
        row, period = _in_sequence(leaders, ask.replication_factor), len(leaders)
    else:
        leaders = sorted(broker.broker_id for broker in brokers)
        gaps = len(leaders) - ask.replication_factor + 1
        row, period = _with_gaps(leaders, ask.replication_factor), len(leaders) * gaps
    start = _goes_on(row, leaders, period, ask.existing)
    cursor = ask.cursor
    if start is None or start % period == cursor % period:
        start, cursor = cursor, cursor + ask.partition_count
    turn = [row(start + each) for each in range(min(period, ask.partition_count))]
    rows = list(islice(chain.from_iterable(repeat(turn)), ask.partition_count))
    remarks = _remarks(turn, ask.partition_count, racks, len(ask.existing))
    return Placement(rows, cursor, tuple(remarks))


def _racks(brokers: Sequence[UsableBroker]) -> Mapping[str, list[int]]:
    """Brokers by rack; nothing when no broker has one."""
    racks: dict[str, list[int]] = {}
    missing: list[int] = []
    for broker in sorted(brokers):
        if broker.rack is None:
            missing.append(broker.broker_id)
        else:
            racks.setdefault(broker.rack, []).append(broker.broker_id)
    if racks and missing:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            "Computed assignment with racks needs a rack for every broker, and these have none: "
            f"{', '.join(map(str, missing))}. Set broker.rack there, or "
            "ignore.rack.assignment=true for the topic.",
        )
    return racks


def rack_sequence(racks: Mapping[str, Sequence[int]]) -> list[int]:
    """Stages 1 and 2: every broker once, read in diagonals from the matrix of racks."""
    labels = sorted(racks, key=lambda label: (-len(racks[label]), label))
    matrix = [sorted(racks[label]) for label in labels]
    columns = len(matrix[0])
    found: dict[int, None] = {}
    for diagonal in range(columns):
        for depth, brokers in enumerate(matrix):
            column = (diagonal + depth) % columns
            found.setdefault(brokers[column % len(brokers)])
    return list(found)


def _in_sequence(sequence: Sequence[int], replication_factor: int) -> Callable[[int], Row]:
    """Stage 3: list i of a sequence of brokers."""
    around = (*sequence, *sequence)

    def row(index: int) -> Row:
        at = index % len(sequence)
        return around[at : at + replication_factor]

    return row


def _with_gaps(ids: Sequence[int], replication_factor: int) -> Callable[[int], Row]:
    """List i where racks play no part."""
    around = (*ids, *ids)
    size = len(ids)
    gaps = size - replication_factor + 1

    def row(index: int) -> Row:
        first = index % size
        follower = (first + 1 + index // size % gaps) % size
        return (around[first], *around[follower : follower + replication_factor - 1])

    return row


def _goes_on(
    row: Callable[[int], Row], leaders: Sequence[int], period: int, existing: Sequence[Row]
) -> int | None:
    """The index after a topic's last list, when all its lists follow each other in the sequence,
    where `leaders` lead in turn."""
    if not existing or existing[-1][0] not in leaders:
        return None
    for index in range(leaders.index(existing[-1][0]), period, len(leaders)):
        if all(
            row((index - back) % period) == each for back, each in enumerate(reversed(existing))
        ):
            return index + 1
    return None


def _remarks(
    turn: Sequence[Row], partition_count: int, racks: Mapping[str, Sequence[int]], first: int
) -> list[str]:
    """Which partitions have two replicas in one rack, and why; their lists are `turn`, again and
    again."""
    rack_of = {broker_id: label for label, brokers in racks.items() for broker_id in brokers}
    places = [
        place
        for place, row in enumerate(turn)
        if rack_of and len({rack_of[each] for each in row}) < min(len(row), len(racks))
    ]
    if not places:
        return []
    rounds, rest = divmod(partition_count, len(turn))
    doubled = rounds * len(places) + sum(place < rest for place in places)
    begins = range(first, first + partition_count, len(turn))
    indexes = (begin + place for begin in begins for place in places)
    named = ", ".join(map(str, islice(indexes, min(MOST_NAMED, doubled))))
    more = f" and {doubled - MOST_NAMED} more" if doubled > MOST_NAMED else ""
    sizes = ", ".join(f"{label}: {len(brokers)}" for label, brokers in sorted(racks.items()))
    return [
        f"Partitions {named}{more} have two replicas in one rack although racks would suffice: "
        f"computed assignment balances brokers, and the racks differ in size ({sizes})."
    ]
