"""A rehearsal told a line a step: who leads, who is in sync, how far each log is, what was told.

What: one partition is followed. A line is an event of the file, a change of the partition's
metadata, a process that serves again, a log that is cut, or an answer that came late. Its columns
show the state when the step had come to rest: half a second later, or right before the next step.

Rule kept: the same file gives the same text to the byte, so that it can stand in a repository and
be compared; times are shown in tenths of a second. Not here: the numbers of the report.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.core.metadata.image import RECOVERING, PartitionImage
from anabranch.core.sentences import number_of
from anabranch.sim.node import SimNode
from anabranch.sim.processes import State
from anabranch.sim.rehearsal.answers import Answers, Place, acks_text
from anabranch.sim.rehearsal.model import Action, Event, Rehearsal
from anabranch.sim.rehearsal.probe import manner
from anabranch.sim.rehearsal.producer import UNANSWERED, Sent
from anabranch.sim.rehearsal.stage import Stage
from anabranch.sim.rehearsal.units import SECOND_US

REST_US = 700_000
"""A follower hears of a new high watermark with its next fetch: at most 500 ms later."""

WHAT_WIDTH = 56
BROKER_WIDTH = 9
PAGE_WIDTH = 96
SERVES = "serves"
REMOTES = {"objects": "the object store", "coordinator": "the coordinator"}


@dataclass(slots=True)
class _Step:
    at_us: int
    what: str
    told: list[str] = field(default_factory=list)


class Transcript:
    """Follows the watched partition of a stage."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.world = stage.world
        self.probe = stage.probe
        self.place: Place = stage.plan.watch
        self.brokers = stage.plan.seen_by(*self.place)
        self.lines: list[str] = []
        self._open: _Step | None = None
        self._began = False

    def run(self) -> None:
        """Run the stage and write down what happens."""
        stage = self.stage
        stage.on_event = self._event
        stage.on_look = self._told
        self.probe.on_change = self._changed
        self.probe.on_node = self._node_changed
        self.probe.on_truncated = self._truncated
        for client in stage.clients.values():
            client.heard.append(self._heard)
        stage.on_begin = self._begin
        stage.run()
        self._close()

    def _begin(self) -> None:
        self._began = True
        self._step("the rehearsal begins")

    # What steps are.

    def _event(self, event: Event, brokers: tuple[int, ...]) -> None:
        self._step(event.says or describe(event, brokers))

    def _changed(self, place: Place, before: PartitionImage | None, state: PartitionImage) -> None:
        if place == self.place and before is not None and self._began:
            what = difference(before, state)
            if what:
                self._close(before)
                self._step(what)

    def _node_changed(self, node: SimNode, what: str) -> None:
        words = {"serving": "serves again", "stop": "has stopped"}.get(what)
        if self._began and words is not None and node.node_id in self.brokers:
            self._step(f"broker {node.node_id} {words}")

    def _truncated(self, broker: int, place: Place, before: int, after: int) -> None:
        if self._began and place == self.place and before > after:
            self._step(f"broker {broker} truncates its log from {before} to {after}")

    def _heard(self, sent: Sent) -> None:
        if self._began and sent.place == self.place:
            self._told(answer(sent))

    def _told(self, text: str) -> None:
        if self._open is None:
            self._step("a response arrives")
        assert self._open is not None
        self._open.told.append(text)

    # Lines.

    def _step(self, what: str) -> None:
        self._close()
        step = self._open = _Step(self.world.now_us, what)
        self.world.after(REST_US, self._rested, step)

    def _rested(self, step: _Step) -> None:
        if self._open is step:
            self._close()

    def _close(self, state: PartitionImage | None = None) -> None:
        step, self._open = self._open, None
        if step is None:
            return
        state = state or self.probe.states[self.place]
        seconds = (step.at_us - self.stage.begins_us) / SECOND_US
        leader = "none" if state.leader < 0 else str(state.leader)
        columns = [
            f"{seconds:6.1f} s  {step.what:<{WHAT_WIDTH}}",
            f"{leader:<6} {state.leader_epoch:<5} {ids(state.isr):<7} {ids(state.elr):<5}",
            "".join(
                f"{log_of(self.stage, each, self.place):<{BROKER_WIDTH}}" for each in self.brokers
            ),
            "; ".join(step.told),
        ]
        self.lines.append(" ".join(columns).rstrip())

    @property
    def head(self) -> str:
        """The names of the columns."""
        brokers = broker_titles(self.stage.plan)
        what = f"{'at':>6}    {'what happens':<{WHAT_WIDTH}}"
        return (
            f"{what} {'leader':<6} {'epoch':<5} {'ISR':<7} {'ELR':<5} {brokers} response to client"
        )


def broker_titles(plan: Rehearsal) -> str:
    """What the columns of the watched partition's brokers are called."""
    topic = plan.topic(plan.watch[0])
    assert topic is not None
    what = "broker" if topic.is_diskless else "log"
    return "".join(f"{f'{what} {each}':<{BROKER_WIDTH}}" for each in plan.seen_by(*plan.watch))


def log_of(stage: Stage, broker: int, place: Place) -> str:
    """How far a broker's log of a partition is, or why it cannot be seen; of a diskless partition
    whether the broker serves."""
    node = stage.cluster.nodes[broker]
    if node.state is State.PAUSED:
        return "frozen"
    if not node.is_up:
        return "down"
    if place[0] in stage.probe.diskless:
        return SERVES if node.is_serving else "-"
    replica = stage.probe.replica(broker, place)
    return "-" if replica is None else f"{replica.high_watermark}/{replica.log.end_offset}"


def ids(brokers: tuple[int, ...]) -> str:
    """Broker ids, or a dash for none."""
    return ",".join(map(str, sorted(brokers))) or "-"


def ranges(offsets: tuple[int, ...]) -> str:
    """Rising offsets, those that follow each other as one: `0-4, 7`."""
    runs: list[list[int]] = []
    for offset in offsets:
        if runs and offset == runs[-1][1] + 1:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def answer(sent: Sent) -> str:
    """What a client was told of a batch."""
    acks = f"acks={acks_text(sent.acks)}"
    if sent.is_acknowledged:
        last = sent.base_offset + len(sent.values) - 1
        offsets = f"{sent.base_offset}-{last}" if last > sent.base_offset else f"{last}"
        return f"{offsets} acknowledged ({acks})"
    if sent.told == UNANSWERED:
        return f"{counted(len(sent.values))} not answered ({acks})"
    return f"{sent.told} for {counted(len(sent.values))} ({acks})"


def counted(records: int) -> str:
    """`1 record`, `5 records`."""
    return f"{records} record{'s' if records != 1 else ''}"


def difference(before: PartitionImage, state: PartitionImage) -> str:
    """What changed in a partition's metadata, in words."""
    parts = []
    if state.leader != before.leader:
        how = manner(before, state)
        elected = f"{state.leader} is elected {how}".rstrip()
        parts.append("no replica can lead" if state.leader < 0 else elected)
    elif state.leader_epoch != before.leader_epoch:
        parts.append(f"{state.leader} stays leader in a new epoch")
    gone = [each for each in before.replicas if each not in state.replicas]
    new = [each for each in state.replicas if each not in before.replicas]
    if new:
        parts.append(f"{ids(tuple(new))} gets a replica")
    if gone:
        parts.append(f"{ids(tuple(gone))} loses its replica")
    out = [each for each in before.isr if each not in (*state.isr, *gone)]
    back = [each for each in state.isr if each not in (*before.isr, *new)]
    if out:
        parts.append(f"{ids(tuple(out))} out of the ISR")
    if back:
        parts.append(f"{ids(tuple(back))} into the ISR")
    if state.elr != before.elr:
        parts.append(f"ELR is {ids(state.elr)}" if state.elr else "ELR is empty")
    if state.recovery_state != before.recovery_state and state.recovery_state != RECOVERING:
        parts.append("the leader has recovered")
    return "; ".join(parts)


def describe(event: Event, brokers: tuple[int, ...]) -> str:
    """An event that its file gave no words."""
    return _DESCRIPTIONS[event.action](event, named(brokers))


def named(brokers: tuple[int, ...]) -> str:
    """`broker 1`, or `brokers 1,2`."""
    if not brokers:
        return "no broker"
    return f"broker{'s' if len(brokers) > 1 else ''} {ids(brokers)}"


def _send(event: Event, _who: str) -> str:
    to = "" if event.to is None else f" to {event.to.text}"
    verb = "is" if event.records == 1 else "are"
    return f"{counted(event.records)} {verb} sent{to}, acks={acks_text(event.acks)}"


_DESCRIPTIONS: dict[Action, Callable[[Event, str], str]] = {
    Action.KILL: lambda _, who: f"{who} killed",
    Action.POWER_LOSS: lambda _, who: f"{who} without power",
    Action.PAUSE: lambda _, who: f"{who} frozen",
    Action.RESUME: lambda _, who: f"{who} resumed",
    Action.START: lambda _, who: f"{who} started",
    Action.SHUT_DOWN: lambda _, who: f"{who} shut down",
    Action.RESTART: lambda _, who: f"{who} restarted",
    Action.WIPE: lambda _, who: f"{who} started with empty disks",
    Action.ROLL: lambda _, who: f"{who} restarted one after the other",
    Action.CUT: lambda event, who: f"links of {who} to {event.to.text if event.to else ''} cut",
    Action.HEAL: lambda _event, _who: "all links restored",
    Action.ELECT: lambda event, _: f"an operator asks for a {event.election} election",
    Action.SET: lambda event, _: ", ".join(f"{k}={v}" for k, v in sorted(event.settings.items())),
    Action.CREATE: lambda event, _: f"topic {event.topic} is created",
    Action.ADD: lambda _, who: f"{who} added",
    Action.DRAIN: lambda _, who: f"{who} drained",
    Action.GROW: lambda event, _: (
        f"{event.topic} grows to {number_of(event.partitions, 'partition')}"
    ),
    Action.OUTAGE: lambda event, _: f"{REMOTES[event.remote]} is away",
    Action.RESTORE: lambda event, _: f"{REMOTES[event.remote]} is back",
    Action.SEND: _send,
    Action.READ: lambda _event, _who: "a consumer reads",
}


def transcribe(plan: Rehearsal) -> str:
    """Run a plan and tell it."""
    stage = Stage(plan)
    transcript = Transcript(stage)
    transcript.run()
    answers = stage.answers()
    about = textwrap.wrap(plan.about, PAGE_WIDTH - 2)
    source = [f"After {plan.source}."] if plan.source else []
    top = [f"# {plan.name}", "#", *(f"# {line}" for line in (*source, *about))]
    top += ["#"] if source or about else []
    topic, index = plan.watch
    top += [
        f"# Partition {topic}-{index}. {_shown(plan)}",
        "",
        transcript.head,
    ]
    return "\n".join([*top, *transcript.lines, "", *_end(answers)]) + "\n"


def _shown(plan: Rehearsal) -> str:
    topic = plan.topic(plan.watch[0])
    assert topic is not None
    if topic.is_diskless:
        return "It is diskless: any broker that serves takes and gives its records."
    return "A log is shown as high watermark/end offset; both are exclusive."


def _end(answers: Answers) -> list[str]:
    lines = [f"Acknowledged records lost: {answers.records_lost}"]
    for loss in answers.losses:
        offsets = f"{loss.place[0]}-{loss.place[1]}, offsets {ranges(loss.offsets)}"
        rule = loss.rule or "no rule allows it"
        text = f"{offsets}: {rule}."
        lines += textwrap.wrap(text, PAGE_WIDTH, initial_indent="  ", subsequent_indent="  ")
    for verdict in answers.verdicts:
        word = "holds" if verdict.holds else "does not hold"
        seen = f"{verdict.claim.measure.replace('_', ' ')} is {verdict.seen}"
        lines.append(f"“{verdict.claim.says}” {word}: {seen}.")
    if answers.violation:
        lines.append(f"Broken: {answers.violation}")
    return lines
