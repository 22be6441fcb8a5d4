"""Plans of moves: what would change, why each move, and why nothing can.

What: one function a goal. `drain` empties brokers, `fill` lets new ones carry their share,
`mend_racks` ends avoidable pairs in one rack, `change_factor` gives a topic more or fewer replicas.
Each returns a `Plan`: moves with reasons, and obstacles, each with what it would take. Rules kept:
a plan is made from a layout alone, and equal layouts give equal plans; no goal moves a replica that
it need not move; a topic's placement constraints hold; a replica list keeps its order but for what
is replaced, so that leaders stay where they can; what cannot be done is said partition by partition
and stops nothing else; a goal that names a broker or topic that is missing is refused as a whole.

Worked example: brokers 1, 2, 3 in racks a, b, c, and 4 in c; draining 3 moves each of its replicas
to 4 (rack c would be free again), and nothing else. Trade-off: moves are counted, not bytes.

Not here: carrying a plan out (`core/controller`), lists for new partitions (the placers).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.placement.layout import BrokerSite, Layout, Row
from anabranch.core.placement.managed import rack_name
from anabranch.core.placement.racks import spread_of
from anabranch.core.sentences import named, number_of
from anabranch.core.types import TopicPartition


class MoveCause(StrEnum):
    """Why a move is planned."""

    BROKER_DRAINED = "BROKER_DRAINED"
    BROKER_ADDED = "BROKER_ADDED"
    RACK_VIOLATION = "RACK_VIOLATION"
    FACTOR_CHANGED = "FACTOR_CHANGED"
    CONSTRAINTS = "CONSTRAINTS"


NO_BYTES = "; the topic is diskless: no records move"
"""How the sentence of a move ends of which nothing is copied."""


class PlannedMove(NamedTuple):
    """One partition's move, and why."""

    place: TopicPartition
    before: Row
    after: Row
    why: MoveCause
    sentence: str

    @property
    def copied(self) -> int:
        """Replicas that are copied: none of a diskless topic, whose moves say so."""
        if self.sentence.endswith(NO_BYTES):
            return 0
        return len(set(self.after) - set(self.before))


class Obstacle(NamedTuple):
    """Something that the goal asks for and cannot be; `needs` says what it would take."""

    what: str
    why: str
    needs: str


class Plan(NamedTuple):
    """What would be done, in order, and what would not."""

    goal: str
    moves: tuple[PlannedMove, ...]
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def cordons(self) -> list[int]:
        """The brokers on which nothing new is placed once the plan is applied."""
        return drained(self.moves)

    @property
    def sentence(self) -> str:
        """The plan in one sentence, also when it is empty."""
        if self.moves:
            copied = sum(each.copied for each in self.moves)
            moves = number_of(len(self.moves), "partition")
            return f"{self.goal}: {moves} to move, {number_of(copied, 'replica')} to copy"
        if self.obstacles:
            return f"{self.goal}: nothing can move"
        return f"{self.goal}: nothing has to move"


class DrainMove(Protocol):
    """A move, as far as it may be one of a drain."""

    @property
    def before(self) -> Row: ...
    @property
    def after(self) -> Row: ...
    @property
    def why(self) -> str: ...


def drained(moves: Iterable[DrainMove]) -> list[int]:
    """The brokers that moves drain: such a broker gets nothing new meanwhile."""
    return sorted(
        {
            broker_id
            for each in moves
            if each.why == MoveCause.BROKER_DRAINED
            for broker_id in set(each.before) - set(each.after)
        }
    )


def drain(layout: Layout, broker_ids: Iterable[int]) -> Plan:
    """Move every replica off these brokers, each to the best of the others; also off those that are
    not registered any more. Raises ClientFault for one that has no replica either."""
    leaving = sorted(set(broker_ids))
    goal = f"drain {named(leaving, 'broker')}"
    _refuse_unknown(layout, [each for each in leaving if not layout.replicas[each]])
    sites = layout.open_sites(leaving)
    notes: dict[TopicPartition, str] = {}
    obstacles: list[Obstacle] = []
    for place in layout.places_of(leaving):
        row = layout.rows[place]
        for broker_id in leaving:
            if broker_id not in row:
                continue
            stays = tuple(each for each in row if each != broker_id)
            site = layout.choose(stays, layout.fitting(place, stays, sites))
            if site is None:
                obstacles.append(_nowhere(layout, place, row, broker_id, leaving))
                continue
            notes[place] = _because(layout, stays, site, f"broker {broker_id} is drained")
            row = _replaced(layout, row, broker_id, site.broker_id)
            layout.move(place, row)
    return Plan(goal, tuple(_moves(layout, notes, MoveCause.BROKER_DRAINED)), tuple(obstacles))


def fill(layout: Layout, broker_ids: Iterable[int]) -> Plan:
    """Let these brokers, which carry less than others, take over until all carry their share.

    Raises ClientFault for one that is not registered.
    """
    joining = sorted(set(broker_ids))
    goal = f"add {named(joining, 'broker')}"
    _refuse_unknown(layout, joining)
    shut = [each for each in joining if not layout.sites[each].is_open]
    obstacles = [
        Obstacle(f"broker {each}", closed(layout.sites[each]), "an active broker, not cordoned")
        for each in shut
    ]
    sites = layout.open_sites()
    share = sum(layout.replicas[site.broker_id] for site in sites) // max(1, len(sites))
    held = layout.by_broker()
    notes: dict[TopicPartition, str] = {}
    for broker_id in (each for each in joining if each not in shut):
        waits = _take_share(layout, layout.sites[broker_id], share, held, joining, notes)
        if layout.replicas[broker_id] < share:
            obstacles.append(_share_not_reached(layout, broker_id, share, waits))
    return Plan(goal, tuple(_moves(layout, notes, MoveCause.BROKER_ADDED)), tuple(obstacles))


def _take_share(
    layout: Layout,
    site: BrokerSite,
    share: int,
    held: dict[int, list[TopicPartition]],
    joining: Sequence[int],
    notes: dict[TopicPartition, str],
) -> bool:
    """Take replicas from the broker that carries most, as long as no rack gets worse by it. Of a
    partition one replica moves in a plan: answers whether a second one is left for the next."""
    waits = False
    open_ids = {each.broker_id for each in layout.open_sites(joining)}
    givers = sorted(open_ids & held.keys())
    held = {each: held[each].copy() for each in givers}  # what does not fit here may fit the next
    while layout.replicas[site.broker_id] < share:
        givers = [each for each in givers if layout.replicas[each] > share and held[each]]
        if not givers:
            break
        giver = max(givers, key=lambda each: (layout.replicas[each], -each))
        place = held[giver].pop()
        row = layout.rows[place]
        stays = tuple(each for each in row if each != giver)
        if giver not in row or site.broker_id in row:
            continue
        if not layout.fitting(place, stays, [site]):
            continue
        if (
            layout.in_racks(stays)[site.rack or ""]
            > layout.in_racks(stays)[layout.rack(giver) or ""]
        ):
            continue
        if place in notes:
            waits = True
            continue
        carried = f"broker {giver} carries {layout.replicas[giver]}"
        notes[place] = _because(layout, stays, site, f"{carried}, the share is {share}")
        layout.move(place, _replaced(layout, row, giver, site.broker_id))
    return waits


def mend_racks(layout: Layout) -> Plan:
    """End every pair of replicas in one rack that a free rack could end, but of topics that accept
    shared racks."""
    goal = "mend rack violations"
    sites = layout.open_sites()
    racks = {site.rack for site in layout.sites.values()} - {None}
    notes: dict[TopicPartition, str] = {}
    obstacles: list[Obstacle] = []
    left = {*layout.rules, *layout.accepting_shared_racks}
    for place in sorted(place for place in layout.rows if place.topic not in left):
        while (crowded := _crowded(layout, layout.rows[place])) is not None:
            row = layout.rows[place]
            held = layout.in_racks(row)
            free = [site for site in sites if site.rack is not None and not held[site.rack]]
            site = layout.choose(row, free)
            if site is None:
                if spread_of(map(layout.rack, row)).violates(len(racks)):
                    obstacles.append(_no_free_rack(place, layout.rack(crowded)))
                break
            said = f"rack {layout.rack(crowded)} had {held[layout.rack(crowded) or '']} of it"
            stays = tuple(each for each in row if each != crowded)
            notes[place] = _because(layout, stays, site, said)
            layout.move(place, _replaced(layout, row, crowded, site.broker_id))
    return Plan(goal, tuple(_moves(layout, notes, MoveCause.RACK_VIOLATION)), tuple(obstacles))


def change_factor(layout: Layout, topic: str, factor: int) -> Plan:
    """Give every partition of a topic `factor` replicas; its first one stays unless it is down.

    Raises ClientFault for a topic that is not there.
    """
    goal = f"give {topic} replication factor {factor}"
    places = sorted(place for place in layout.rows if place.topic == topic)
    if not places:
        raise ClientFault(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"There is no topic {topic!r}: `anabranch topics list` shows what there is.",
        )
    if factor < 1:
        why = "a partition needs at least one replica"
        return Plan(goal, (), (Obstacle(topic, why, "a factor above 0"),))
    if topic in layout.rules:
        return Plan(goal, (), (_constrained(layout, topic),))
    sites = layout.open_sites()
    notes: dict[TopicPartition, str] = {}
    obstacles: list[Obstacle] = []
    for place in places:
        if place in layout.missing and len(layout.rows[place]) == factor:
            obstacles.append(_still_awaited(layout, place, factor))
        while len(layout.rows[place]) < factor:
            row = layout.rows[place]
            site = layout.choose(row, sites)
            if site is None:
                obstacles.append(_too_few(place, len(sites), factor))
                break
            notes[place] = _because(layout, row, site, "it needs more replicas")
            layout.move(place, (*row, site.broker_id))
        while len(layout.rows[place]) > factor:
            row = layout.rows[place]
            gone = _dispensable(layout, row)
            notes[place] = f"the replica on broker {gone} is removed: {_spare(layout, row, gone)}"
            layout.move(place, tuple(each for each in row if each != gone))
    return Plan(goal, tuple(_moves(layout, notes, MoveCause.FACTOR_CHANGED)), tuple(obstacles))


# Choices.


def _replaced(layout: Layout, row: Row, gone: int, new: int) -> Row:
    """The list with `new` for `gone`. A new broker does not lead at once where another could: of
    those that stay, whoever leads least comes first."""
    if gone != row[0] or len(row) == 1:
        return tuple(new if each == gone else each for each in row)
    stays = [each for each in row if each != gone]
    active = [each for each in stays if each in layout.sites and layout.sites[each].active]
    first = min(active or stays, key=lambda each: (layout.leaders[each], stays.index(each)))
    return (first, *(each for each in stays if each != first), new)


def _crowded(layout: Layout, row: Row) -> int | None:
    """The replica that should leave a rack with several, None when no rack has: not the first of
    the list, and on the broker that carries most."""
    held = layout.in_racks(row)
    paired = [each for each in row[1:] if held[layout.rack(each) or ""] > 1]
    return max(paired, key=lambda each: (layout.replicas[each], each), default=None)


def _dispensable(layout: Layout, row: Row) -> int:
    """The replica to give up: on a broker that is down, in a rack with several, then on the broker
    that carries most; the first only where it is down."""
    held = layout.in_racks(row)

    def worth(broker_id: int) -> tuple[bool, bool, int, int, int]:
        site = layout.sites.get(broker_id)
        rack = layout.rack(broker_id)
        is_down = site is None or not site.active
        follows = broker_id != row[0]
        return is_down, follows, held[rack or ""], layout.replicas[broker_id], broker_id

    return max(row, key=worth)


# Sentences.


def _moves(
    layout: Layout, notes: dict[TopicPartition, str], why: MoveCause
) -> Iterator[PlannedMove]:
    for place in layout.moved():
        said = notes[place]
        if place.topic in layout.diskless:
            said += NO_BYTES
        yield PlannedMove(place, layout.before[place], layout.rows[place], why, said)


def _because(layout: Layout, stays: Sequence[int], site: BrokerSite, cause: str) -> str:
    """Why that broker gets the replica."""
    if site.rack is None:
        choice = "it carries least"
    elif layout.in_racks(stays)[site.rack] == 0:
        choice = f"rack {site.rack} has none of it, and there it carries least"
    else:
        choice = f"no rack is free, and in rack {site.rack} it carries least"
    return f"{cause}; broker {site.broker_id} gets the replica: {choice}"


def _spare(layout: Layout, row: Row, broker_id: int) -> str:
    site = layout.sites.get(broker_id)
    if site is None or not site.active:
        return "it is down"
    if site.rack is not None and layout.in_racks(row)[site.rack] > 1:
        return f"rack {site.rack} has another"
    return "it carries most"


def _nowhere(
    layout: Layout, place: TopicPartition, row: Row, broker_id: int, leaving: Sequence[int]
) -> Obstacle:
    if place.topic in layout.diskless:
        return _no_other_of_the_rack(layout, place, broker_id)
    if place.topic in layout.rules:
        return _no_fitting(layout, place, row, broker_id)
    others = [site for each, site in sorted(layout.sites.items()) if each not in (*row, *leaving)]
    shut = [f"broker {site.broker_id} {closed(site)}" for site in others if not site.is_open]
    why = f"all other brokers already have a replica of it: it has {len(row)}"
    if shut:
        why = f"{'; '.join(shut)}; the others have a replica"
    return Obstacle(
        f"the replica of {place} on broker {broker_id}",
        why,
        "one more active broker that is not cordoned, or a lower replication factor",
    )


def _no_fitting(layout: Layout, place: TopicPartition, row: Row, broker_id: int) -> Obstacle:
    """No broker may take over a replica, as the topic's placement constraints say."""
    stays = [each for each in row if each != broker_id]
    racks = layout.racks_with_room(layout.rules[place.topic], stays)
    what = f"the replica of {place} on broker {broker_id}"
    if not racks:
        why = "the replicas do not satisfy the placement constraints of the topic"
        return Obstacle(what, why, f"`anabranch plan observers --topic {place.topic}` before that")
    where = f"rack {' or '.join(racks)}"
    return Obstacle(
        what,
        f"the placement constraints of its topic require it in {where}, where no other broker can "
        "get it",
        f"one more active broker in {where} that is not cordoned, or other constraints",
    )


def _no_other_of_the_rack(layout: Layout, place: TopicPartition, broker_id: int) -> Obstacle:
    """A diskless partition has one replica in each rack, and there is nobody else in this one."""
    rack = rack_name(layout.rack(broker_id))
    return Obstacle(
        f"the replica of {place} on broker {broker_id}",
        f"{place.topic} is diskless, with one replica in each rack, and no other broker of rack "
        f"{rack} can get it; it holds no records",
        f"one more active broker in rack {rack} that is not cordoned, or the end of the broker: "
        "once the whole rack is gone, its replicas go by themselves",
    )


def _constrained(layout: Layout, topic: str) -> Obstacle:
    if topic in layout.diskless:
        return Obstacle(
            topic,
            "it is diskless, and its replication factor is the number of racks",
            "a broker in another rack, or one rack fewer",
        )
    return Obstacle(
        topic,
        f"its placement constraints want {number_of(sum(layout.rules[topic].values()), 'replica')}",
        f"other constraints, then `anabranch plan observers --topic {topic}`",
    )


def _too_few(place: TopicPartition, open_count: int, factor: int) -> Obstacle:
    return Obstacle(
        f"{number_of(factor, 'replica')} of {place}",
        f"only {number_of(open_count, 'broker')} can get replicas",
        f"{number_of(factor, 'active broker')} that are not cordoned",
    )


def _still_awaited(layout: Layout, place: TopicPartition, factor: int) -> Obstacle:
    return Obstacle(
        f"replication factor {factor} of {place}",
        f"missing: {number_of(layout.missing[place], 'replica')}, for the next broker that joins",
        "`anabranch partitions reassign --execute` with a file that gives it the replicas "
        f"{_ids(layout.rows[place])}: no replica moves, and the missing ones are given up",
    )


def _no_free_rack(place: TopicPartition, rack: str | None) -> Obstacle:
    return Obstacle(
        f"two replicas of {place} in rack {rack}",
        "every broker of the racks without one is down or cordoned",
        "an active broker, not cordoned, in a rack without a replica of it",
    )


def _share_not_reached(layout: Layout, broker_id: int, share: int, waits: bool) -> Obstacle:
    what = f"broker {broker_id} with {layout.replicas[broker_id]} of {number_of(share, 'replica')}"
    if waits:
        return Obstacle(
            what,
            "a partition that could give it one moves another replica in this plan",
            "the same command once this plan is complete",
        )
    return Obstacle(
        what,
        "further moves would put two replicas of a partition into one rack, or on the same broker",
        "brokers in more racks",
    )


def _refuse_unknown(layout: Layout, broker_ids: Iterable[int]) -> None:
    if unknown := [each for each in broker_ids if each not in layout.sites]:
        raise ClientFault(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"Not registered: {named(unknown, 'broker')}; known: {_ids(sorted(layout.sites))}.",
        )


def closed(site: BrokerSite) -> str:
    """Why a broker that is not open may not be given replicas."""
    return "is cordoned" if site.active else "is down"


def _ids(broker_ids: Iterable[int]) -> str:
    return ", ".join(map(str, broker_ids))
