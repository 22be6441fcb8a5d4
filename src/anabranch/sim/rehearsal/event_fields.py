"""The `events` of a rehearsal's file: a moment and one action each.

    kill, power_loss, pause, resume, start, shut_down, wipe: WHO     what happens to nodes
    restart: WHO, down: 5s      controlled shutdown, and a start that much later
    roll: WHO, down: 5s         restart one after the other, each when all are in sync again
    cut: WHO, from: WHO         links, both ways; with `one_way: true` only towards the first;
                                `links: replication` or `links: controller`: only these
    heal: links                 every link is whole again
    elect: preferred|unclean, of: orders-0       as kafka-leader-election does
    set: {topic: orders, settings: {…}}          as kafka-configs does
    create: {topic: …, partitions: …, replication: …, settings: {…}}
    grow: {topic: orders, partitions: 12}        as kafka-topics --alter does
    add: WHO                    start brokers of `later`, and give them their share
    drain: WHO                  cordon brokers, and move every replica off them
    outage: objects|coordinator, restore: …      what diskless topics lie in is away, and is back
    send: {to: orders-0, records: 5, acks: all, broker: WHO}
    read: orders-0              how far a consumer sees

WHO is a broker's id, a list of ids, a rack, `all`, `controller`, `leader of orders-0` or
`followers of orders-0`; the last three are looked up when it happens. Every event may have `says`,
what a transcript calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.core.partition.protocol import ACKS_ALL
from anabranch.core.sentences import number_of
from anabranch.sim.rehearsal import units
from anabranch.sim.rehearsal.fields import Item, Section, nearest
from anabranch.sim.rehearsal.model import Action, BrokerChoice, Event, TopicPlan

RECORDS_MOST = 10_000
EVENTS_MOST = 1_000
PARTITIONS_MOST = 1_000
"""What runs within a minute or so in one process."""
DOWN_US = 5 * units.SECOND_US
ROLES = ("leader", "followers")
WHO_EXAMPLES = "a broker's id, a list of ids, a rack, `all`, `controller` or `leader of TOPIC-0`"
REMOTES = ("coordinator", "objects")
PLANES = {"all": "all", "replication": "data", "controller": "control"}
ACKS = {"0": 0, "1": 1, "all": ACKS_ALL, "-1": ACKS_ALL}


@dataclass(frozen=True)
class Known:
    """What events may name."""

    brokers: tuple[int, ...]
    racks: Mapping[int, str]
    topics: tuple[TopicPlan, ...]
    length_us: int
    later: tuple[int, ...]
    settings: Callable[[Item | None], Mapping[str, str]]

    def topic(self, item: Item) -> TopicPlan:
        """The topic that a value names."""
        names = [each.name for each in self.topics]
        if item.text not in names:
            raise item.fault(
                f"There is no topic {item.text!r}; there is {', '.join(names)}."
                f"{nearest(item.text, names)}"
            )
        return self.topics[names.index(item.text)]

    def place(self, item: Item, text: str | None = None) -> tuple[str, int]:
        """The partition that a value names, as in `orders-0`."""
        name, dash, index = (item.text if text is None else text).rpartition("-")
        if not dash or not index.isascii() or not index.isdigit():
            raise item.fault(f"{item.text!r} is no partition. Write it as TOPIC-0.")
        for topic in self.topics:
            if topic.name == name:
                if int(index) >= len(topic.replicas):
                    raise item.fault(
                        f"{name} has {number_of(len(topic.replicas), 'partition')}, counted from "
                        "0. Name one of them."
                    )
                return name, int(index)
        names = [each.name for each in self.topics]
        raise item.fault(f"There is no topic {name!r}.{nearest(name, names)}")

    def who(self, item: Item) -> BrokerChoice:
        """The brokers that a value names."""
        if item.is_list:
            ids = tuple(self._broker(each) for each in item.items())
            if not ids:
                raise item.fault(f"Name at least one: {WHO_EXAMPLES}.")
            return BrokerChoice(", ".join(map(str, ids)), ids)
        text = item.text
        if text.isascii() and text.isdigit():
            return BrokerChoice(text, (self._broker(item),))
        if text == "all":
            return BrokerChoice("all", self.brokers)
        if text == "controller":
            return BrokerChoice("the controller", role="controller")
        role, of, place = text.partition(" of ")
        if of and role in ROLES:
            topic, partition = self.place(item, place.strip())
            return BrokerChoice(f"the {role} of {topic}-{partition}", (), role, topic, partition)
        return self._rack(item)

    def _broker(self, item: Item) -> int:
        text = item.text
        if not text.isascii() or not text.isdigit() or int(text[:18]) not in self.brokers:
            ids = ", ".join(map(str, self.brokers))
            raise item.fault(f"There is no broker {text}; there are {ids}. Name one of them.")
        return int(text)

    def _rack(self, item: Item) -> BrokerChoice:
        name = item.text.removeprefix("rack ")
        ids = tuple(each for each in self.brokers if self.racks.get(each) == name)
        if not ids:
            known = sorted(set(self.racks.values()))
            racks = f" Racks are {', '.join(known)}." if known else " The cluster has no racks."
            raise item.fault(f"{item.text!r} names no broker: expected {WHO_EXAMPLES}.{racks}")
        return BrokerChoice(f"rack {name}", ids)


def read_events(item: Item | None, known: Known) -> tuple[Event, ...]:
    """The events in the order of their moments. Raises PlanError."""
    if item is None:
        return ()
    events = [_event(each, known) for each in item.items()]
    if len(events) > EVENTS_MOST:
        raise item.fault(f"At most {EVENTS_MOST} events can be rehearsed.")
    return tuple(sorted(events, key=lambda event: event.at_us))


def _event(item: Item, known: Known) -> Event:
    section = item.section()
    at_us = section.need("at").quantity(units.duration_us, "10s")
    if at_us > known.length_us:
        raise section.need("at").fault(
            f"The rehearsal ends at {known.length_us / units.SECOND_US:g}s. Make `length` longer, "
            "or this earlier."
        )
    words = [action.value for action in Action]
    actions = [name for name in section.names if name in words]
    if len(actions) != 1:
        strange = [name for name in section.names if name not in (*words, "at", "says")]
        hint = nearest(strange[0], words) if strange and not actions else ""
        raise item.fault(
            f"An event needs one action beside `at`, and this has {len(actions) or 'none'}.{hint} "
            f"Actions are {', '.join(sorted(words))}."
        )
    action = Action(actions[0])
    says = section.text("says")
    fields = _READERS[action](section, section.need(action.value), known)
    section.end()
    return Event(at_us=at_us, action=action, line=item.line, says=says, **fields)


def _nodes(_section: Section, item: Item, known: Known) -> dict[str, Any]:
    return {"who": known.who(item)}


def _add(_section: Section, item: Item, known: Known) -> dict[str, Any]:
    who = known.who(item)
    if not who.brokers or not set(who.brokers) <= set(known.later):
        names = ", ".join(map(str, known.later)) or "none"
        raise item.fault(f"Brokers that can be added are those of cluster.later: {names}.")
    return {"who": who}


def _remote(_section: Section, item: Item, known: Known) -> dict[str, Any]:
    if not any(topic.is_diskless for topic in known.topics):
        raise item.fault("No topic lies there. Give one `settings: {diskless.enable: true}`.")
    return {"remote": item.one_of(REMOTES)}


def _grow(_section: Section, item: Item, known: Known) -> dict[str, Any]:
    inner = item.section()
    topic = known.topic(inner.need("topic"))
    least = len(topic.replicas) + 1
    partitions = inner.need("partitions").whole(least, PARTITIONS_MOST)
    inner.end()
    return {"topic": topic.name, "partitions": partitions}


def _restart(section: Section, item: Item, known: Known) -> dict[str, Any]:
    down_us = section.quantity("down", DOWN_US, units.duration_us, "5s")
    return {"who": known.who(item), "down_us": down_us}


def _cut(section: Section, item: Item, known: Known) -> dict[str, Any]:
    one_way, links = section.take("one_way"), section.take("links")
    return {
        "who": known.who(item),
        "to": known.who(section.need("from")),
        "one_way": one_way is not None and one_way.flag(),
        "plane": PLANES["all" if links is None else links.one_of(PLANES)],
    }


def _heal(_section: Section, item: Item, _known: Known) -> dict[str, Any]:
    item.one_of(("links",))
    return {}


def _elect(section: Section, item: Item, known: Known) -> dict[str, Any]:
    election = item.one_of(("preferred", "unclean"))
    place = section.take("of")
    if place is None:
        return {"election": election}
    topic, partition = known.place(place)
    return {"election": election, "topic": topic, "partition": partition}


def _set(_section: Section, item: Item, known: Known) -> dict[str, Any]:
    inner = item.section()
    topic = known.topic(inner.need("topic"))
    settings = known.settings(inner.need("settings"))
    inner.end()
    return {"topic": topic.name, "settings": settings}


def _create(_section: Section, item: Item, known: Known) -> dict[str, Any]:
    inner = item.section()
    fields = {
        "topic": inner.need("topic").text,
        "partitions": inner.whole("partitions", 1, least=1, most=100),
        "replication": inner.whole("replication", 3, least=1, most=100),
        "settings": known.settings(inner.take("settings")),
    }
    inner.end()
    return fields


def _send(_section: Section, item: Item, known: Known) -> dict[str, Any]:
    inner = item.section()
    topic, partition = known.place(inner.need("to"))
    acks, broker = inner.take("acks"), inner.take("broker")
    fields = {
        "topic": topic,
        "partition": partition,
        "records": inner.whole("records", 1, least=1, most=RECORDS_MOST),
        "acks": ACKS_ALL if acks is None else ACKS[acks.one_of(ACKS)],
        "to": None if broker is None else known.who(broker),
    }
    inner.end()
    return fields


def _read(_section: Section, item: Item, known: Known) -> dict[str, Any]:
    topic, partition = known.place(item)
    return {"topic": topic, "partition": partition}


_READERS: Mapping[Action, Callable[[Section, Item, Known], dict[str, Any]]] = {
    Action.KILL: _nodes,
    Action.POWER_LOSS: _nodes,
    Action.PAUSE: _nodes,
    Action.RESUME: _nodes,
    Action.START: _nodes,
    Action.SHUT_DOWN: _nodes,
    Action.WIPE: _nodes,
    Action.RESTART: _restart,
    Action.ROLL: _restart,
    Action.CUT: _cut,
    Action.HEAL: _heal,
    Action.ELECT: _elect,
    Action.SET: _set,
    Action.CREATE: _create,
    Action.ADD: _add,
    Action.DRAIN: _nodes,
    Action.GROW: _grow,
    Action.OUTAGE: _remote,
    Action.RESTORE: _remote,
    Action.SEND: _send,
    Action.READ: _read,
}
