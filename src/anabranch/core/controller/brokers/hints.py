"""Prompt fencing: a process that is gone is found in milliseconds, without trusting the finding.

What: when a broker's connection to the controller closes, the shell dials that broker anew; nobody
listening there, or another incarnation answering, is a hint that fences exactly the broker epoch
that was asked about. Why a hint: a closed port proves little about records. Rules kept: only the
listener on which brokers reach each other is dialled, since clients' addresses may lead nowhere
from here; a broker whose listener for that is not known is not dialled. A hint is void when the
epoch is old, a heartbeat came since the dial began, or the answer is late; it is counted for each
broker, so that a flapping one falls back to its session; and what follows from it alone is never an
unclean election (`Sessions.suspects`) until the session would have ended by silence too.

Source: the architecture's "a dead process is found in milliseconds". Not here: how one dials (the
shell), fencing itself (`fencing.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

from anabranch.core.controller.brokers.sessions import Sessions
from anabranch.core.metadata.image import BrokerImage, Endpoint, MetadataImage

REDIAL_MS = 300
"""How long an answer is waited for: long enough for a lost packet, short beside any session."""
PROBE_AFTER_MS = 100
"""A new controller asks for those who did not find it by themselves within this time."""
LATER_MS = 1_000
"""Before a broker is dialled again whose answer said nothing and that sends no heartbeat: of a
process that dies slowly the listener may be the last that goes."""
MOST_HINTS = 3
"""Fencings by hint a broker in HINT_WINDOW_MS: a process that crashes in a loop, or whose port is
blocked while it lives, is left to its session timeout after these."""
HINT_WINDOW_MS = 60_000


@dataclass(frozen=True, slots=True)
class Probe:
    """A broker to be dialled at `endpoint`, by the steady clock from `asked_ms` on until it answers
    or `until_ms` has come. `contact` is the number of its last heartbeat before that."""

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoint: Endpoint
    contact: int
    asked_ms: int
    until_ms: int


class Answer(Enum):
    """What dialling found."""

    REFUSED = "nothing listens at its address"
    ANOTHER = "another incarnation answers in its place"
    SAME = "it answers"
    SILENCE = "its address does not answer"


TELLING = frozenset({Answer.REFUSED, Answer.ANOTHER})
"""Answers that are hints. Silence is none: a cut cable waits for the session timeout."""


def was_heard(sessions: Sessions, probe: Probe) -> bool:
    """Whether a heartbeat of the broker came since the dial began, however quickly."""
    return sessions.contact_number(probe.broker_id, probe.broker_epoch) != probe.contact


def asks_again_in_ms(probe: Probe, answer: Answer, now_ms: int) -> int | None:
    """When to ask again after an answer that fenced nobody, None when not at all: it was a hint
    that is not believed. One that came too late, since this process was held up, says nothing."""
    if answer in TELLING:
        return 0 if now_ms > probe.until_ms else None
    return LATER_MS


def dialled_at(broker: BrokerImage, listener: str) -> Endpoint | None:
    """Where other brokers reach this one: the listener of that name, else the only one it has."""
    only = next(iter(broker.endpoints.values())) if len(broker.endpoints) == 1 else None
    return broker.endpoint(listener) or only


class Hints:
    """Probes under way and hints taken. One a controller term. `listener` is the name of the one on
    which brokers reach each other, "" where this node was not told."""

    def __init__(self, listener: str) -> None:
        self.listener = listener
        self.under_way: dict[int, Probe] = {}
        self.due: list[Probe] = []
        self.taken_ms: dict[int, deque[int]] = {}
        self.first_look_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        """A term begins: who is not heard from soon will be asked for."""
        self.first_look_ms = now_ms + PROBE_AFTER_MS

    def look_first(self, image: MetadataImage, sessions: Sessions, now_ms: int) -> None:
        """Once a term, when it is time: probe every unfenced broker that was not heard from."""
        if self.first_look_ms is None or now_ms < self.first_look_ms:
            return
        self.first_look_ms = None
        for broker_id, epoch in sorted(sessions.unheard):
            self.connection_closed(image, sessions, broker_id, epoch, now_ms)

    def connection_closed(
        self, image: MetadataImage, sessions: Sessions, broker_id: int, epoch: int, now_ms: int
    ) -> None:
        """Probe the broker, unless it is not the one that is registered, or is asked already. One
        that is fenced is probed while it has a session: its successor waits for that."""
        broker = image.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            return
        if broker.fenced and (broker_id, epoch) not in sessions.contact_ms:
            return
        under_way = self.under_way.get(broker_id)
        if under_way is not None and under_way.broker_epoch == epoch:
            if now_ms <= under_way.until_ms and not was_heard(sessions, under_way):
                return
        endpoint = dialled_at(broker, self.listener)
        if endpoint is None:
            return
        contact, until_ms = sessions.contact_number(broker_id, epoch), now_ms + REDIAL_MS
        probe = Probe(broker_id, epoch, broker.incarnation_id, endpoint, contact, now_ms, until_ms)
        self.under_way[broker_id] = probe
        self.due.append(probe)

    def take(self) -> tuple[Probe, ...]:
        """Probes to be begun, each given once."""
        due, self.due = tuple(self.due), []
        return due

    def believed(
        self, image: MetadataImage, sessions: Sessions, probe: Probe, answer: Answer, now_ms: int
    ) -> BrokerImage | None:
        """The broker that this answer fences, None when it fences nobody. Counts against the cap.

        A probe is answered once.
        """
        if self.under_way.get(probe.broker_id) != probe:
            return None
        del self.under_way[probe.broker_id]
        broker = image.brokers.get(probe.broker_id)
        if answer not in TELLING or now_ms > probe.until_ms:
            return None
        if broker is None or broker.epoch != probe.broker_epoch:
            return None
        if was_heard(sessions, probe):
            return None
        sessions.found_gone(broker.broker_id, broker.epoch)
        if broker.fenced:
            return None
        return broker if self._counted(broker.broker_id, now_ms) else None

    def _counted(self, broker_id: int, now_ms: int) -> bool:
        taken = self.taken_ms.setdefault(broker_id, deque())
        while taken and taken[0] <= now_ms - HINT_WINDOW_MS:
            taken.popleft()
        if len(taken) >= MOST_HINTS:
            return False
        taken.append(now_ms)
        return True
