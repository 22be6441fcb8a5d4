"""Running a rehearsal: build the cluster, let it come to rest, let things happen, gather answers.

What: the clock of a rehearsal begins when every broker serves, every topic is whole and what is
retained has been written and synced. Then producers write, events happen at their moments with all
checks of the simulator on, and at the end the books are closed.

Rule kept: seed and file give the same run to the byte. The retained bytes of a partition are a few
records that stand for them: a replica that copies one of those has copied its share of the bytes.
Not here: what an event does (`actions.py`), what is looked at (`probe.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.errors import ErrorCode
from anabranch.core.partition.protocol import ACKS_ALL
from anabranch.core.settings.catalogue import BROKER_SETTINGS
from anabranch.sim.cluster import Cluster
from anabranch.sim.node import SimNode
from anabranch.sim.rehearsal.actions import Actor
from anabranch.sim.rehearsal.answers import Answers, Place, Verdict
from anabranch.sim.rehearsal.checks import CheckedRun, NotReady
from anabranch.sim.rehearsal.consumer import look
from anabranch.sim.rehearsal.lessons import lessons
from anabranch.sim.rehearsal.losses import losses
from anabranch.sim.rehearsal.measurements import copied, copy_time, outstanding, seen_at_end
from anabranch.sim.rehearsal.model import Action, Claim, Event, Rehearsal
from anabranch.sim.rehearsal.probe import Probe
from anabranch.sim.rehearsal.producer import Sender, Steady, fared
from anabranch.sim.rehearsal.units import SECOND_US
from anabranch.sim.world import World

STANDS_FOR = 10
"""Records of a partition that stand for what it retains."""

SETTLE_US = SECOND_US
WRITE_BACK_US = 30 * SECOND_US
"""How long Linux leaves written pages in memory before it stores them by itself."""

READY_US = 120 * SECOND_US
"""A healthy cluster that is not ready by then never will be."""

DISKLESS_ON = {"diskless.storage.system.enable": "true"}
THRESHOLD = "diskless.managed.rf.rack.unavailable.threshold.ms"
OnEvent = Callable[[Event, tuple[int, ...]], None]


class Stage:
    """One rehearsal being run. `on_event` hears of each event before it is done."""

    def __init__(self, plan: Rehearsal) -> None:
        self.plan = plan
        self.world = World(plan.seed)
        config = {**DISKLESS_ON, **plan.settings} if plan.is_diskless else dict(plan.settings)
        self.cluster = Cluster(
            self.world, list(plan.brokers), config, plan.racks,
            controller=plan.controller, is_diskless=plan.is_diskless,
        )  # fmt: skip
        self._put_apart()
        self.probe = Probe(self.cluster)
        self.checking = CheckedRun(
            self.cluster,
            {topic.name for topic in plan.topics if topic.is_diskless},
            threshold_ms=int(config.get(THRESHOLD, str(BROKER_SETTINGS[THRESHOLD].default))),
        )
        self.probe.stored = self.checking.stored
        self.cluster.checks.append(self.probe)
        self.actor = Actor(self.cluster, self.probe)
        self.actor.mover.on_moves = self.checking.moves_asked
        self.producers = [Steady(self.cluster, topic) for topic in plan.topics]
        self.clients = {
            t.name: Sender(self.cluster, f"client-{t.name}", t.name) for t in plan.topics
        }
        for sender in self.senders:
            sender.sends = self.checking.sent
            sender.heard.append(self.checking.told)
        self.history_ends: dict[Place, int] = {}
        self.on_event: OnEvent | None = None
        self.on_begin: Callable[[], None] | None = None
        self.on_look: Callable[[str], None] | None = None
        self.begins_us = 0
        self._seen_at: dict[int, int] = {}

    def _put_apart(self) -> None:
        """Racks lie as far from each other as the plan says."""
        nodes, racks = self.cluster.nodes, self.plan.racks
        network, distance_us = self.cluster.network, self.plan.between_racks_us
        for one in nodes.values():
            for other in nodes.values():
                if racks.get(one.node_id) != racks.get(other.node_id):
                    for source in (one.name, one.controller_name):
                        for target in (other.name, other.controller_name):
                            network.set_distance(source, target, distance_us)

    def run(self) -> None:
        """Run it all; what is violated on the way ends it."""
        self.checking.run(self._run)

    def _run(self) -> None:
        self.prepare()
        self.perform()

    # Before anything happens.

    def prepare(self) -> None:
        """Start the cluster, create the topics, write what they retain, and come to rest."""
        self.cluster.start(without=self.plan.later)
        self._until(self._all_serve, "a broker does not serve")
        for topic in self.plan.topics:
            self.actor.operator.create(topic, self._created)
        self._until(self._all_whole, "a topic is not whole")
        for sender in [*self.producers, *self.clients.values()]:
            sender.refresh()
        self._until(self._all_know, "a producer knows no leader")
        self._write_history()
        self._until(self._all_told, "what topics retain is not written")
        whole_seconds = -(-(self.world.now_us + SETTLE_US) // SECOND_US)
        self.world.run(whole_seconds * SECOND_US)
        nodes = list(self.cluster.nodes.values())
        for index, node in enumerate(nodes):
            node.disk.sync_all()
            node.metadata_disk.sync_all()
            self.probe.note_high_watermarks(node)
            first_us = WRITE_BACK_US * (index + 1) // len(nodes)
            self.world.after(first_us, self._write_back, node)
        self.history_ends = dict(self.probe.committed_ends)
        self.begins_us = self.world.now_us

    def _created(self, response: Any) -> None:
        for topic in response.topics:
            if topic.error_code:
                why = topic.error_message or ErrorCode(topic.error_code).name
                raise NotReady(f"Topic {topic.name} cannot be created: {why}")

    def _write_back(self, node: SimNode) -> None:
        node.disk.sync_all()
        node.metadata_disk.sync_all()
        self.world.after(WRITE_BACK_US, self._write_back, node)

    def _until(self, is_so: Callable[[], bool], otherwise: str) -> None:
        while not is_so():
            if self.world.now_us > READY_US:
                raise NotReady(
                    f"The cluster is not ready after {READY_US // SECOND_US} s: {otherwise}."
                )
            self.world.run(self.world.now_us + SECOND_US // 10)

    def _all_serve(self) -> bool:
        later = self.plan.later
        return all(node.is_serving for n, node in self.cluster.nodes.items() if n not in later)

    def _all_whole(self) -> bool:
        states = self.probe.states
        return all(
            (state := states.get((topic.name, index))) is not None
            and len(state.isr) == len(row)
            and self.probe.service((topic.name, index)) is None
            for topic in self.plan.topics
            for index, row in enumerate(topic.replicas)
        )

    def _all_know(self) -> bool:
        senders = [*self.producers, *self.clients.values()]
        return all(each.leaders and -1 not in each.leaders.values() for each in senders)

    def _write_history(self) -> None:
        for topic in self.plan.topics:
            if topic.retained_bytes:
                for index in range(len(topic.replicas)):
                    self.clients[topic.name].send(index, STANDS_FOR, ACKS_ALL)

    def _all_told(self) -> bool:
        for client in self.clients.values():
            for sent in client.log:
                if sent.told and not sent.is_acknowledged:
                    raise NotReady(f"What {client.topic} retains cannot be written: {sent.told}.")
                if not sent.told:
                    return False
        return True

    # What happens.

    def perform(self) -> None:
        """Let the producers write and the events happen until the end."""
        self.probe.begin()
        if self.on_begin is not None:
            self.on_begin()
        for producer in self.producers:
            producer.start()
        for event in self.plan.events:
            self.world.after(event.at_us, self._do, event)
        for claim in self.plan.claims:
            if claim.at_us >= 0:
                self.world.after(claim.at_us, self._look_at, claim)
        self.world.run(self.begins_us + self.plan.length_us)
        for producer in self.producers:
            producer.stop()

    def _do(self, event: Event) -> None:
        brokers = () if event.who is None else self.actor.who(event.who)
        if self.on_event is not None:
            self.on_event(event, brokers)
        if event.action is Action.SEND:
            self._send(event)
        elif event.action is Action.READ:
            self._read(event)
        else:
            if event.election == "unclean":
                self._ask_uncleanly(event)
            self.actor.told = self.on_look or _unheard
            self.actor.do(event, brokers)

    def _ask_uncleanly(self, event: Event) -> None:
        wanted = (event.topic, event.partition)
        for topic, index in self.probe.states:
            if event.partition is None or wanted == (topic, index):
                self.checking.unclean_asked(topic, index)

    def _send(self, event: Event) -> None:
        assert event.partition is not None
        client = self.clients[event.topic]
        if event.to is None:
            client.send_fresh(event.partition, event.records, event.acks)
            return
        for broker in self.actor.who(event.to)[:1]:
            client.send(event.partition, event.records, event.acks, broker)

    def _read(self, event: Event) -> None:
        assert event.partition is not None
        client = self.clients[event.topic]
        leader = self.probe.states[event.topic, event.partition].leader
        told = self.on_look or (lambda _text: None)
        if leader < 0:
            told("no leader to read from")
            return
        topic = (event.topic, client.topic_id)
        look(self.cluster, client.name, leader, topic, event.partition, told)

    def _look_at(self, claim: Claim) -> None:
        self._seen_at[id(claim)] = self.high_watermark((claim.topic, claim.partition))

    def high_watermark(self, place: Place) -> int:
        """What the leader of a partition shows to consumers, or showed last."""
        leader = self.probe.serving_leader(place)
        return self.probe.committed_ends.get(place, 0) if leader is None else leader.high_watermark

    # What was seen.

    def answers(self) -> Answers:
        """Close the books."""
        plan, probe = self.plan, self.probe
        probe.end()
        ends_us = self.begins_us + plan.length_us
        all_sent = [sent for each in self.senders for sent in each.log]
        ranges = [*probe.copies.ranges, *outstanding(probe)]
        bytes_by_broker = copied(plan, ranges, self.history_ends)
        answers = Answers(
            name=plan.name,
            seed=plan.seed,
            length_us=plan.length_us,
            bandwidth_bytes=plan.bandwidth_bytes,
            topics=probe.topics(),
            spans=probe.relative_spans(self.begins_us),
            writes=[
                fared(each, each.plan.acks, self.begins_us, ends_us) for each in self.producers
            ],
            losses=losses(probe, all_sent),
            moves=probe.relative_moves(self.begins_us),
            leaders=probe.leaders(),
            copied_bytes=bytes_by_broker,
            copy_us=copy_time(plan, ranges, self.history_ends),
            creations=[(at - self.begins_us, name, e) for at, name, e in self.actor.creations],
            violation=self.checking.violation,
        )
        answers.verdicts = [Verdict(claim, self._seen(claim, answers)) for claim in plan.claims]
        answers.lessons = lessons(plan, answers)
        return answers

    @property
    def senders(self) -> list[Sender]:
        """Everybody who writes."""
        return [*self.producers, *self.clients.values()]

    def _seen(self, claim: Claim, answers: Answers) -> int:
        if claim.measure == "high_watermark":
            at_end = self.high_watermark((claim.topic, claim.partition))
            return self._seen_at.get(id(claim), at_end)
        return seen_at_end(claim, answers)


def _unheard(_text: str) -> None:
    return None


def run(plan: Rehearsal) -> Answers:
    """Run a plan and answer."""
    stage = Stage(plan)
    stage.run()
    return stage.answers()
