"""Prompt fencing: a process that is gone is found in milliseconds, without trusting the finding.

What: when a broker's connection to the controller closes, the shell dials that broker anew; nobody
listening there, or another incarnation answering, is a hint that fences exactly the broker epoch
that was asked about. Why a hint: a closed port proves little about records. Rules kept: a hint is
void when the epoch is old, the broker was heard from since, or the answer is late; it is counted
for each broker, so that a flapping one falls back to its session; and what follows from it alone is
never an unclean election (`Sessions.suspects`) until the session would have ended by silence too.

Source: the architecture's "a dead process is found in milliseconds". Not here: how one dials (the
shell), fencing itself (`fencing.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

from anabranch.core.controller.image import BrokerImage, MetadataImage
from anabranch.core.controller.sessions import Sessions

REDIAL_MS = 300
"""How long an answer is waited for: long enough for a lost packet, short beside any session."""
PROBE_AFTER_MS = 100
"""A new controller asks for those who did not find it by themselves within this time."""
MOST_HINTS = 3
"""Fencings by hint a broker in HINT_WINDOW_MS: a process that crashes in a loop, or whose port is
blocked while it lives, is left to its session timeout after these."""
HINT_WINDOW_MS = 60_000


@dataclass(frozen=True, slots=True)
class Probe:
    """A broker to be dialled at its own listener, by the steady clock from `asked_ms` on until it
    answers or `until_ms` has come."""

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    asked_ms: int
    until_ms: int


class Answer(Enum):
    """What dialling found."""

    REFUSED = "nobody listens where it listened"
    ANOTHER = "another incarnation answers in its place"
    SAME = "it answers"
    SILENCE = "nothing is heard from there"


TELLING = frozenset({Answer.REFUSED, Answer.ANOTHER})
"""Answers that are hints. Silence is none: a cut cable waits for the session timeout."""


class Hints:
    """Probes under way and hints taken. One a controller term."""

    def __init__(self) -> None:
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
            self.connection_closed(image, broker_id, epoch, now_ms)

    def connection_closed(
        self, image: MetadataImage, broker_id: int, epoch: int, now_ms: int
    ) -> None:
        """Probe the broker, unless it is not the one that is registered, or is asked already."""
        broker = image.brokers.get(broker_id)
        under_way = self.under_way.get(broker_id)
        asked = under_way is not None and now_ms <= under_way.until_ms
        asked = asked and under_way is not None and under_way.broker_epoch == epoch
        if broker is None or broker.epoch != epoch or broker.fenced or asked:
            return
        probe = Probe(broker_id, epoch, broker.incarnation_id, now_ms, now_ms + REDIAL_MS)
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
        if broker is None or broker.epoch != probe.broker_epoch or broker.fenced:
            return None
        if sessions.heard_after(broker.broker_id, broker.epoch, probe.asked_ms):
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
