"""The faults, each as what begins it and what ends it.

What: one context manager a kind; it yields a sentence for the protocol once it has begun, and is
left when its time is over. A fault that meets nothing (its node is dead already) raises `Nothing`.
Rule kept: every fault is one that the promise of acks=all with two in-sync replicas survives: files
stay as the kernel has them, and no election is unclean. Several at once are welcome. Not here: when
and how many (`plan`), what they happen to (`scene`).
"""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from itertools import permutations

import psycopg

from anabranch.client import admin
from anabranch.client.elections import Election, elect_leaders
from anabranch.client.reassignments import reassign
from anabranch.core.errors import StorageFault
from anabranch.core.types import TopicPartition
from anabranch.testing import ClusterError
from anabranch.testing.fault_calls import Undo
from chaos.asking import ask
from chaos.faults_diskless import kill_between, outlive_lease
from chaos.faults_settings import alter
from chaos.nodes import IDS
from chaos.operator_log import now_us
from chaos.plan import FAMILIES, Fault
from chaos.scene import Scene
from chaos.stores import Nothing, PostgresDatabase, wait_at_most
from chaos.streams import ROLE as STREAMS
from chaos.topics import create

Happening = contextlib.AbstractContextManager[str]
Act = Callable[[Scene, Fault], Happening]
TIMES = 4
"""How often a coordinator of transactions is killed in one fault."""
ROWS = [row for size in (2, 3) for row in permutations(IDS, size)]
"""The replicas that a partition which may move is given."""
MOST_SLACK_BYTES = 2 << 20
ALONE = "moving"
"""A topic that may be left with a single replica: one in sync is enough for its writers."""
STORE_FAULTS = (StorageFault, sqlite3.Error, psycopg.Error)


# Processes.


Strike = Callable[[int], bool]


@contextlib.contextmanager
def _away(
    scene: Scene, what: str, strike: Strike, back: Strike, ids: tuple[int, ...]
) -> Iterator[str]:
    """Some brokers are gone, and come back; a strike says whether it hit somebody."""
    roles = {each: scene.role(each) for each in ids}
    struck = [each for each in ids if strike(each)]
    if not struck:
        raise Nothing(f"none of {ids} is there to {what}")
    yield f"{what} " + " and ".join(roles[each] for each in struck)
    for each in struck:
        back(each)


def _killed(scene: Scene, *ids: int) -> Happening:
    return _away(scene, "kill", scene.nodes.kill, scene.nodes.begin, ids)


def _paused(scene: Scene, *ids: int) -> Happening:
    return _away(scene, "pause", scene.nodes.pause, scene.nodes.resume, ids)


def _stopped(scene: Scene, *ids: int) -> Happening:
    return _away(scene, "stop", scene.nodes.stop, scene.nodes.begin, ids)


def _another(scene: Scene, fault: Fault, one: int) -> int:
    others = [each for each in IDS if each != one]
    return others[int(fault.other * len(others)) % len(others)]


def _kill_two(scene: Scene, fault: Fault) -> Happening:
    one = scene.some(fault.aim)
    return _killed(scene, one, _another(scene, fault, one))


@contextlib.contextmanager
def _flap(scene: Scene, fault: Fault) -> Iterator[str]:
    """Kill it, start it, and kill it again while it starts, some times over."""
    one, times = scene.some(fault.aim), 2 + int(fault.strength * 3)
    said = f"kill {scene.role(one)} {times} times while it starts"
    if not scene.nodes.kill(one):
        raise Nothing(f"{one} dead already")
    for turn in range(1, times):
        scene.nodes.begin(one)
        scene.over.wait(0.1 + fault.other * turn)
        scene.nodes.kill(one)
    yield said
    scene.nodes.begin(one)


@contextlib.contextmanager
def _flap_transactions(scene: Scene, fault: Fault) -> Iterator[str]:
    """Kill whoever coordinates the same transactional ids, again and again."""
    said = f"kill whoever coordinates transactions, {TIMES} times"
    for _ in range(TIMES):
        with contextlib.suppress(Nothing):
            one = scene.transactions(fault.aim)
            if scene.nodes.kill(one):
                scene.over.wait(0.5 + fault.strength * 4)
                scene.nodes.begin(one)
        scene.over.wait(0.5 + fault.other * 3)
    yield said


@contextlib.contextmanager
def _roll(scene: Scene, fault: Fault) -> Iterator[str]:
    """Stop and start one after the other, without waiting for anything."""
    for each in IDS:
        if not scene.over.is_set() and scene.nodes.stop(each):
            scene.nodes.begin(each)
    yield "stop and start one after the other"


@contextlib.contextmanager
def _kill_all(scene: Scene, fault: Fault) -> Iterator[str]:
    if not scene.nodes.kill_all():
        raise Nothing("all dead already")
    yield f"kill all at once, {scene.watch.controller} held the lease"
    order = sorted(IDS, key=lambda each: (each * 7 + int(fault.other * 100)) % 11)
    for each in order:
        scene.nodes.begin(each)
        scene.over.wait(fault.strength / 2)


# Links. What ends is one fault's own cut or delay; one more over it ends with it, which is fair.


@contextlib.contextmanager
def _undone(undo: Undo, said: str) -> Iterator[str]:
    """Something that was begun is undone at the end."""
    with undo:
        yield said


def _cut(scene: Scene, one: int, other: int | None = None, *, one_way: bool) -> Happening:
    towards = "the others" if other is None else str(other)
    said = f"cut {scene.role(one)} off from {towards}{' in one direction' if one_way else ''}"
    return _undone(scene.nodes.cluster.cut(one, other, one_way=one_way), said)


def _cut_pair(scene: Scene, fault: Fault) -> Happening:
    one = scene.some(fault.aim)
    return _cut(scene, one, _another(scene, fault, one), one_way=fault.strength < 0.3)


def _delay(scene: Scene, fault: Fault) -> Happening:
    one, ms = scene.some(fault.aim), int(5 + fault.strength**2 * 400)
    said = f"delay {scene.role(one)} by {ms} ms"
    return _undone(scene.nodes.cluster.delay(one, ms=ms), said)


# Links between hosts.


@contextlib.contextmanager
def _part(scene: Scene, fault: Fault, one: int) -> Iterator[str]:
    """Cut a host off from other hosts: packets are dropped, by no end of the connection."""
    assert scene.network is not None
    nodes, kind = scene.network.nodes, fault.kind
    others = [nodes[each] for each in IDS if each != one]
    towards = "the other brokers"
    if kind == "part-pair":
        others, towards = [nodes[_another(scene, fault, one)]], "another broker"
    elif kind == "part-controller":
        others, towards = [*others, scene.network.store], "the other brokers and the store"
    elif kind == "part-store":
        others, towards = [scene.network.store], "the store"
    elif kind == "part-objects":
        others, towards = [scene.network.objects], "S3"
    elif kind == "part-clients":
        others, towards = [scene.network.clients], "clients"
    out, back = [(nodes[one], each) for each in others], [(each, nodes[one]) for each in others]
    way = "in both directions"
    if kind == "part-one-way" or (kind not in WHOLE and fault.strength < 0.4):
        is_out = fault.other < 0.5
        out, back = (out, []) if is_out else ([], back)
        way = "as sender" if is_out else "as receiver"
    with scene.network.cut([*out, *back]):
        yield f"part {scene.role(one)} from {towards} {way}"


WHOLE = ("part", "part-leader", "part-controller")
"""Links that fail in both directions at once."""


# Disks and clocks.


@contextlib.contextmanager
def _no_room(scene: Scene, fault: Fault) -> Iterator[str]:
    assert scene.disks is not None
    brokers = scene.disks.brokers
    one, slack = brokers[int(fault.aim * len(brokers))], int(fault.strength**2 * MOST_SLACK_BYTES)
    with scene.disks.full(one, slack):
        yield f"leave {slack // 1024} KiB on the file system of {scene.role(one)}"


def _slow_disk(scene: Scene, fault: Fault) -> Happening:
    one, ms = scene.some(fault.aim), int(5 + fault.strength**2 * 500)
    said = f"slow the disk of {scene.role(one)} by {ms} ms"
    return _undone(scene.nodes.cluster.slow_disk(one, ms=ms), said)


def _full_disk(scene: Scene, fault: Fault) -> Happening:
    one = scene.some(fault.aim)
    said = f"fill the disk of {scene.role(one)}"
    return _undone(scene.nodes.cluster.full_disk(one), said)


def _clock_jump(scene: Scene, fault: Fault) -> Happening:
    one = scene.some(fault.aim)
    seconds = round((fault.strength - 0.3) * 600)
    said = f"set the clock of {scene.role(one)} by {seconds} s"
    return _clock_set(scene, one, seconds, said)


@contextlib.contextmanager
def _clock_set(scene: Scene, one: int, seconds: int, said: str) -> Iterator[str]:
    began_us = now_us()
    try:
        with scene.nodes.cluster.advance_clock(seconds, one):
            yield said
    finally:
        scene.operator.clock(began_us, seconds)


# The store and the lease.


@contextlib.contextmanager
def _steal_lease(scene: Scene, fault: Fault) -> Iterator[str]:
    holder = scene.watch.controller
    if not scene.watch.steal_lease(fault.strength * 2):
        raise Nothing("the lease moved at that moment")
    yield f"take the lease from {holder} for {fault.strength * 2:.1f} s"


@contextlib.contextmanager
def _end_store(scene: Scene, fault: Fault) -> Iterator[str]:
    assert isinstance(scene.store, PostgresDatabase)
    with scene.store.end(at_once=fault.kind == "crash-store") as said:
        yield said


# Clients and operators.


@contextlib.contextmanager
def _elect_preferred(scene: Scene, fault: Fault) -> Iterator[str]:
    ask(scene, lambda cluster: elect_leaders(cluster, Election.PREFERRED, None))
    yield "elect preferred leaders"


@contextlib.contextmanager
def _move(scene: Scene, fault: Fault) -> Iterator[str]:
    """Other replicas for one partition; what is not done at the end is sometimes taken back."""
    place = TopicPartition(*scene.movable[int(fault.aim * len(scene.movable))])
    rows = ROWS + [(each,) for each in IDS] if place.topic == ALONE else ROWS
    row = rows[int(fault.other * len(rows))]
    (asked,) = ask(scene, lambda cluster: reassign(cluster, {place: row}))
    if asked.code:
        raise Nothing(asked.sentence)
    yield f"move {place} to {list(row)}"
    if fault.strength < 0.3:
        ask(scene, lambda cluster: reassign(cluster, {place: None}))


@contextlib.contextmanager
def _recreate(scene: Scene, fault: Fault) -> Iterator[str]:
    """Delete a topic that is written to; another one of its name follows at the end."""
    topic = scene.reborn[int(fault.aim * len(scene.reborn))]
    number = scene.operator.deletion(topic)
    ask(scene, lambda cluster: admin.delete_topic(cluster, topic))
    scene.operator.answered(topic, number)
    yield f"delete topic {topic}"
    with contextlib.suppress(Nothing):  # it is made after the round then
        _create(scene, topic)


def _create(scene: Scene, topic: str) -> None:
    scene.operator.creation(topic)
    ask(scene, lambda cluster: create(cluster, topic))


def restore(scene: Scene) -> list[str]:
    """Make the topics that are gone; those for which that was tried in vain, or just now."""
    gone = [topic for topic in scene.reborn if scene.watch.topic_id(topic) is None]
    for topic in gone:
        with contextlib.suppress(Nothing):
            _create(scene, topic)
    return gone


@contextlib.contextmanager
def _client(scene: Scene, fault: Fault) -> Iterator[str]:
    is_streams = fault.kind in FAMILIES["streams"]
    client = scene.crowd.one_of(STREAMS) if is_streams else scene.crowd.pick(fault.aim)
    if client is None:
        raise Nothing("Kafka Streams takes no part")
    if fault.kind.startswith("pause"):
        client.signal(signal.SIGSTOP)
        yield f"pause client {client.name}"
        client.signal(signal.SIGCONT)
        return
    scene.crowd.kill(client)
    yield f"kill client {client.name}"
    scene.crowd.replace(client)


ACTS: dict[str, Act] = {
    "kill": lambda scene, fault: _killed(scene, scene.some(fault.aim)),
    "kill-leader": lambda scene, fault: _killed(scene, scene.leader(fault.aim)),
    "kill-controller": lambda scene, fault: _killed(scene, scene.controller()),
    "kill-two": _kill_two,
    "kill-all": _kill_all,
    "flap": _flap,
    "pause": lambda scene, fault: _paused(scene, scene.some(fault.aim)),
    "pause-leader": lambda scene, fault: _paused(scene, scene.leader(fault.aim)),
    "pause-controller": lambda scene, fault: _paused(scene, scene.controller()),
    "pause-all": lambda scene, fault: _paused(scene, *IDS),
    "stop": lambda scene, fault: _stopped(scene, scene.some(fault.aim)),
    "stop-leader": lambda scene, fault: _stopped(scene, scene.leader(fault.aim)),
    "stop-controller": lambda scene, fault: _stopped(scene, scene.controller()),
    "roll": _roll,
    "cut": lambda scene, fault: _cut(scene, scene.some(fault.aim), one_way=False),
    "cut-leader": lambda scene, fault: _cut(scene, scene.leader(fault.aim), one_way=False),
    "cut-controller": lambda scene, fault: _cut(scene, scene.controller(), one_way=False),
    "cut-one-way": lambda scene, fault: _cut(scene, scene.some(fault.aim), one_way=True),
    "cut-pair": _cut_pair,
    "delay": _delay,
    "slow-disk": _slow_disk,
    "full-disk": _full_disk,
    "no-room": _no_room,
    "part": lambda scene, fault: _part(scene, fault, scene.some(fault.aim)),
    "part-leader": lambda scene, fault: _part(scene, fault, scene.leader(fault.aim)),
    "part-controller": lambda scene, fault: _part(scene, fault, scene.controller()),
    "part-pair": lambda scene, fault: _part(scene, fault, scene.some(fault.aim)),
    "part-one-way": lambda scene, fault: _part(scene, fault, scene.some(fault.aim)),
    "part-store": lambda scene, fault: _part(scene, fault, scene.some(fault.aim)),
    "part-clients": lambda scene, fault: _part(scene, fault, scene.some(fault.aim)),
    "clock-jump": _clock_jump,
    "steal-lease": _steal_lease,
    "hold-store": lambda scene, fault: scene.store.hold(fault.strength),
    "objects-away": lambda scene, _fault: scene.diskless.objects.away(),
    "objects-slow": lambda scene, fault: scene.diskless.objects.slow(fault.strength),
    "objects-cut": lambda scene, fault: scene.diskless.objects.cut(fault.strength),
    "objects-full": lambda scene, _fault: scene.diskless.objects.full(),
    "part-objects": lambda scene, fault: _part(scene, fault, scene.some(fault.aim)),
    "kill-between": kill_between,
    "outlive-lease": outlive_lease,
    "hold-coordinator": lambda scene, _fault: scene.diskless.hold(),
    "end-store": _end_store,
    "crash-store": _end_store,
    "kill-transactions": lambda scene, fault: _killed(scene, scene.transactions(fault.aim)),
    "pause-transactions": lambda scene, fault: _paused(scene, scene.transactions(fault.aim)),
    "flap-transactions": _flap_transactions,
    "elect-preferred": _elect_preferred,
    "move": _move,
    "recreate": _recreate,
    "alter": alter,
    "kill-client": _client,
    "pause-client": _client,
    "kill-streams": _client,
    "pause-streams": _client,
}


def carry_out(scene: Scene, fault: Fault, say: Callable[[str], None]) -> str | None:
    """Let a fault happen from its begin to its end; what kind happened, None: nothing did."""
    if scene.over.wait(fault.at_s):
        return None
    began_s = time.monotonic()
    try:
        with ACTS[fault.kind](scene, fault) as said:
            lasted_s = time.monotonic() - began_s
            say(f"{said}, {max(lasted_s, fault.lasts_s):.1f} s")
            scene.over.wait(fault.lasts_s)
    except (Nothing, ClusterError, *STORE_FAULTS, OSError) as problem:
        say(f"no {fault.kind}: {problem}")
        return None
    return fault.kind


def carry_out_round(
    scene: Scene, faults: list[Fault], say: Callable[[str], None], until_s: float
) -> list[str]:
    """Let all faults of a round happen; heals everything that they did. The kinds that happened.

    `until_s` on the monotonic clock ends the round early.
    """
    scene.over.clear()
    happened: list[str] = []

    def run(fault: Fault) -> None:
        try:
            kind = carry_out(scene, fault, say)
        except Exception as problem:
            scene.nodes.surprises.append(f"{fault.kind}: {type(problem).__name__}: {problem}")
            raise
        if kind is not None:
            happened.append(kind)

    threads = [threading.Thread(target=run, args=(fault,), daemon=True) for fault in faults]
    for each in threads:
        each.start()
    wait_at_most(
        max(0.0, until_s - time.monotonic()), lambda: not any(each.is_alive() for each in threads)
    )
    scene.over.set()
    for each in threads:
        each.join()
    scene.nodes.heal()
    return happened
