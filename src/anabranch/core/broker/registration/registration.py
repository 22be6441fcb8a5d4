"""A broker's life with its controller as a pure machine: register, heartbeat, leave.

What: registration with a fresh incarnation id, heartbeats, the way back in after a registration
ended, and the controlled shutdown. `step` takes an event, `tick` does what time makes due,
`take_effects` says what the shell must do, in order; call it after each of both. `now_ms` is the
steady clock. Rules kept:

- The folders note the incarnation before it asks for an epoch (`core/log/incarnations.py`).
- The broker says how far it acts on the metadata, and wants to stay fenced while it opens its logs:
  it never leads what it cannot serve. It serves when its own metadata shows it unfenced.
- One request is under way at a time. A heartbeat is sent every `broker.heartbeat.interval.ms`, at
  once when there is news, and in short pauses that grow while the broker waits for an answer that
  time brings (to be let in, to leave).
- When the epoch is not the broker's any more, the metadata says why: another process has its place,
  and this one stops; or the registration ended, and it registers anew.
- A folder that failed is told, or the process stops: others lead only what they know to be lost.
- A node whose id another process holds waits until the session of its own last process must have
  ended. One that is refused for longer has a twin, and stops.
- `confirmed_ms` says when the newest confirmed heartbeat was asked.

Source: KIP-631, KIP-858, KIP-966, Kafka's BrokerLifecycleManager. Not here: what the controller
makes of it (`core/controller/brokers/lifecycle.py`), the messages (`requests.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from anabranch.core.broker.registration.active_controller import PATIENCE_MS, SILENCE_MS
from anabranch.core.broker.registration.events import (
    Answered,
    Ask,
    ControllerFound,
    Effect,
    Event,
    FoldersChanged,
    GiveUp,
    Left,
    LogsOpen,
    MetadataMoved,
    Registered,
    Say,
    Serve,
    ShutDown,
    Start,
    Unanswered,
)
from anabranch.core.broker.registration.failed_folders import FailedFolders
from anabranch.core.broker.registration.requests import (
    BrokerView,
    Identity,
    failed_directories,
    heartbeat_request,
    refusal,
    registration_request,
    replaced,
    too_late,
    untold,
)
from anabranch.core.errors import Bug, ErrorCode
from anabranch.core.log.incarnations import FolderNotes
from anabranch.core.types import NEVER_MS, UNKNOWN_BROKER_EPOCH

if TYPE_CHECKING:
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatResponse

NOT_REGISTERED = -1
EAGER_MS = 10
"""Pause between heartbeats of a broker that waits to be let in or to leave."""
EAGER_HEARTBEATS = 12
"""So many at the short pause: a healthy cluster needs a few. More would load a controller that has
other cares; after these the pause is RETRY_MS."""
RETRY_MS = 100
"""Before a refused registration, or an answer that the metadata does not explain yet, is tried
again."""
SHUTDOWN_MS = 10_000
"""A controller that is gone must not keep a broker from stopping."""
TWIN_MARGIN_MS = 3_000
"""How much longer than a session one controller may refuse a node id until it is clear that another
process holds it: the last heartbeat of the node's own last process may still be on its way, and the
controller looks at sessions in rounds."""


@dataclass(frozen=True, slots=True)
class Times:
    """Settings in milliseconds, with Kafka's defaults: broker.heartbeat.interval.ms,
    initial.broker.registration.timeout.ms, log.dir.failure.timeout.ms, broker.session.timeout.ms
    (which controllers read; all nodes of a cluster should have the same)."""

    heartbeat_ms: int = 2_000
    registration_timeout_ms: int = 60_000
    folder_failure_ms: int = 30_000
    session_ms: int = 9_000

    @classmethod
    def of(cls, config: BrokerConfig) -> Times:
        """As a broker is configured."""
        return cls(
            heartbeat_ms=config.broker_heartbeat_interval_ms,
            registration_timeout_ms=config.initial_broker_registration_timeout_ms,
            folder_failure_ms=config.log_dir_failure_timeout_ms,
            session_ms=config.broker_session_timeout_ms,
        )


class State(Enum):
    """Where a broker is in its life, as it sees itself."""

    NEW = "nothing was asked yet"
    REGISTERING = "it asks for its first epoch"
    FENCED = "it is registered and opens its logs"
    ENTERING = "its logs are open and it asks to be let in"
    UNFENCED = "the controller let it in"
    STALE = "its epoch is not the broker's any more, and its metadata does not say why yet"
    REGISTERING_AGAIN = "its registration ended, and it asks for another epoch"
    LEAVING = "it asks to leave"
    ENDED = "it left, or must stop"


class Registration:
    """One incarnation's registration."""

    def __init__(
        self,
        identity: Identity,
        standing: BrokerView,
        times: Times,
        *,
        notes: FolderNotes | None = None,
        previous_broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        unreachable: Callable[[], str] = str,
    ) -> None:
        """`previous_broker_epoch` is of the last stop if that was clean; `unreachable` says why no
        controller answers, "" when one does."""
        self.identity = identity
        self.state = State.NEW
        self.broker_epoch = NOT_REGISTERED
        self.confirmed_ms = -NEVER_MS
        """When the newest heartbeat or registration was asked that a controller confirmed: the
        registration was valid at some time since."""
        self._standing = standing
        self._times = times
        self._notes = notes
        self._history: Mapping[int, bytes] | None = None
        self._previous_epoch = previous_broker_epoch
        self._unreachable = unreachable
        self._effects: list[Effect] = []
        self._in_flight: Ask | None = None
        self._due_ms = NEVER_MS
        """When the next request is to be sent, while none is under way."""
        self._limit_ms = NEVER_MS
        """When the registration, or the controlled shutdown, is given up."""
        self._now_ms = 0
        self._tries = 0
        self._logs_open = self._has_news = self._serves = False
        self._refused = ""
        self._twin_limit_ms = NEVER_MS
        """When one controller has refused the node id for longer than a session lasts."""
        self._failures = FailedFolders(times.folder_failure_ms)

    # What the shell calls.

    def step(self, event: Event, now_ms: int) -> None:
        """Take an event. Raises Bug for one that cannot happen in the present state."""
        self._now_ms = now_ms
        act = TABLE[self.state].get(type(event))
        if act is None:
            raise Bug(f"{type(event).__name__} in state {self.state.name}")
        act(self, event)

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        self._now_ms = now_ms
        if now_ms >= self._limit_ms:
            self._run_out()
        if now_ms >= self._failures.limit_ms:
            self._note_failures()
        if self._in_flight is None and now_ms >= self._due_ms:
            self._ask()

    @property
    def next_tick_ms(self) -> int:
        """When `tick` has something to do, NEVER_MS for never."""
        due_ms = NEVER_MS if self._in_flight is not None else self._due_ms
        return min(due_ms, self._limit_ms, self._failures.limit_ms)

    def take_effects(self) -> list[Effect]:
        """What is to be done now, in order."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def is_in(self) -> bool:
        """Whether the broker's own metadata shows it unfenced under its epoch."""
        broker = self._standing.image.brokers.get(self.identity.node_id)
        return broker is not None and broker.epoch == self.broker_epoch and not broker.fenced

    @property
    def is_ended(self) -> bool:
        """Whether it left, or must stop."""
        return self.state is State.ENDED

    # Asking: one request at a time.

    def _ask(self) -> None:
        self._has_news, self._due_ms = False, NEVER_MS
        if self.state in (State.REGISTERING, State.REGISTERING_AGAIN):
            self._send(
                registration_request(
                    self.identity, self._standing, self._previous_epoch, self._history
                ),
                None,
            )
            return
        if self.state is not State.LEAVING:
            self._note_failures()
        if not self.is_ended:
            self._send(self._heartbeat(), PATIENCE_MS)

    def _send(self, request: object, patience_ms: int | None) -> None:
        self._in_flight = Ask(request, self._now_ms, patience_ms)
        self._effects.append(self._in_flight)

    def _heartbeat(self) -> object:
        return heartbeat_request(
            self.identity,
            self._standing,
            self.broker_epoch,
            wants_in=self._logs_open,
            leaves=self.state is State.LEAVING,
        )

    def _ask_in(self, pause_ms: int) -> None:
        self._due_ms = self._now_ms + pause_ms
        if self._in_flight is None and pause_ms <= 0:
            self._ask()

    def _pause_ms(self) -> int:
        """The pause before a heartbeat whose answer waits for something."""
        self._tries += 1
        return EAGER_MS if self._tries <= EAGER_HEARTBEATS else RETRY_MS

    def _run_out(self) -> None:
        self._limit_ms = NEVER_MS
        if self.state is State.LEAVING:
            self._leave("no answer")
            return
        sentence = too_late(
            self.identity.node_id,
            self._times.registration_timeout_ms,
            refused=self._refused,
            unreachable=self._unreachable(),
        )
        self._give_up(ErrorCode.REQUEST_TIMED_OUT, sentence)

    def _give_up(self, code: ErrorCode, sentence: str) -> None:
        self._end(GiveUp(code, sentence))

    def _leave(self, why: str) -> None:
        self._end(Left(why))

    def _end(self, effect: Effect) -> None:
        self.state = State.ENDED
        self._in_flight, self._due_ms = None, NEVER_MS
        self._limit_ms = NEVER_MS
        self._failures.stop_looking()
        self._effects.append(effect)

    # Registering.

    def _start(self, _event: Event) -> None:
        if self._notes is not None and not self._note_life(self._notes):
            return
        self.state = State.REGISTERING
        self._limit_ms = self._now_ms + self._times.registration_timeout_ms
        self._ask()

    def _note_life(self, notes: FolderNotes) -> bool:
        """Have the folders know of this life. Whether any of them works."""
        notes.begin(self.identity.incarnation_id)
        self._history = notes.told()
        self._standing.partitions.offline_folders.update(notes.unreadable)
        if notes.unreadable < self.identity.directories.keys():
            return True
        sentence = "No folder of log.dirs can be read. Repair one, then start the broker again."
        self._give_up(ErrorCode.KAFKA_STORAGE_ERROR, " ".join((*notes.faults, sentence)))
        return False

    def _registration_answered(self, event: Answered) -> None:
        if event.ask is not self._in_flight:
            return
        self._in_flight = None
        code = ErrorCode(event.response.error_code)
        if code is ErrorCode.NONE:
            self._registered(event)
            return
        sentence = refusal(self.identity, self._standing.image, code)
        is_ghost = code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        if is_ghost and self.state is State.REGISTERING:
            self._wait_for_a_ghost(sentence, event.ask.asked_ms)
        else:
            self._give_up(code, sentence)

    def _wait_for_a_ghost(self, sentence: str, asked_ms: int) -> None:
        """At a start the other one may be this node's own last process, whose session runs out.
        One that outlives a session is another process; after an answer that took long another
        controller may have begun its session anew."""
        if self._twin_limit_ms == NEVER_MS or self._now_ms - asked_ms >= SILENCE_MS:
            self._twin_limit_ms = self._now_ms + self._times.session_ms + TWIN_MARGIN_MS
        elif self._now_ms >= self._twin_limit_ms:
            self._give_up(ErrorCode.DUPLICATE_BROKER_REGISTRATION, sentence)
            return
        if sentence != self._refused:
            self._effects.append(Say("not registered yet; trying again", sentence))
        self._refused = sentence
        self._ask_in(RETRY_MS)

    def _refused_anew(self, _event: Event) -> None:
        """A controller that takes over gives every registered broker a whole session."""
        self._twin_limit_ms = NEVER_MS

    def _registered(self, event: Answered) -> None:
        if self.state is State.REGISTERING and self._notes is not None:
            epoch = event.response.broker_epoch
            self._notes.registered(self.identity.incarnation_id, epoch)
            for fault in self._notes.faults:
                news = "a folder does not contain its broker's latest incarnation"
                self._effects.append(Say(news, fault, is_error=True))
        self.broker_epoch = event.response.broker_epoch
        self.confirmed_ms = event.ask.asked_ms
        named = event.ask.request.log_dirs
        self._failures.told(set(self.identity.directories.values()).difference(named))
        self._limit_ms, self._tries = NEVER_MS, 0
        self._effects.append(Registered(self.broker_epoch))
        self.state = State.ENTERING if self._logs_open else State.FENCED
        self._ask_in(0)

    def _registration_unanswered(self, event: Unanswered) -> None:
        if event.ask is self._in_flight:
            self._in_flight = None
            self._ask_in(RETRY_MS)

    # Heartbeats.

    def _beat_now(self, _event: Event | None = None) -> None:
        self._has_news = True
        if self._in_flight is None:
            self._ask_in(0)

    def _heartbeat_answered(self, event: Answered) -> None:
        if event.ask is not self._in_flight:
            return
        self._in_flight = None
        if event.response.error_code == ErrorCode.STALE_BROKER_EPOCH:
            self._look_why()
            return
        if not event.response.error_code:
            self._confirmed(event)
        pause_ms = self._times.heartbeat_ms
        if self.state is State.ENTERING:
            pause_ms = min(pause_ms, self._pause_ms())
        self._ask_in(0 if self._has_news else pause_ms)

    def _confirmed(self, event: Answered) -> None:
        response: BrokerHeartbeatResponse = event.response
        self.confirmed_ms = event.ask.asked_ms
        self._failures.told(event.ask.request.offline_log_dirs)
        self._note_failures()
        if self._notes is not None and self._notes.lacking:
            partitions = self._standing.partitions
            self._notes.again(partitions.full_folders | partitions.offline_folders)
        if self.state is State.STALE:
            self.state = State.ENTERING if self._logs_open else State.FENCED
        if self.state is State.ENTERING and not response.is_fenced:
            self.state, self._tries = State.UNFENCED, 0
        elif self.state is State.UNFENCED and response.is_fenced:
            self.state = State.ENTERING
        self._look_whether_in()

    def _heartbeat_unanswered(self, event: Unanswered) -> None:
        if event.ask is self._in_flight:
            self._in_flight = None
            self._effects.append(Say("no heartbeat reached a controller", event.why))
            self._ask_in(0 if self._has_news else self._times.heartbeat_ms)

    def _note_failures(self) -> None:
        """Stop when a folder failed too long ago of which no controller has heard."""
        failures, now_ms = self._failures, self._now_ms
        failures.look(failed_directories(self.identity, self._standing), now_ms)
        if now_ms >= failures.limit_ms:
            sentence = untold(self._times.folder_failure_ms)
            self._give_up(ErrorCode.KAFKA_STORAGE_ERROR, sentence)

    def _folders_changed(self, _event: Event) -> None:
        self._note_failures()
        if not self.is_ended:
            self._beat_now()

    def _logs_are_open(self, _event: Event) -> None:
        self._logs_open = True
        if self.state is State.FENCED:
            self.state, self._tries = State.ENTERING, 0
            self._beat_now()

    def _look_whether_in(self, _event: Event | None = None) -> None:
        if not self._serves and self._logs_open and self.is_in:
            self._serves = True
            self._effects.append(Serve())

    # The epoch is not the broker's any more.

    def _look_why(self, _event: Event | None = None) -> None:
        """Ask the metadata: another process has the place, or the registration ended. Metadata that
        shows neither is older than the controller's answer."""
        self.state = State.STALE
        broker = self._standing.image.brokers.get(self.identity.node_id)
        if broker is not None and broker.incarnation_id != self.identity.incarnation_id:
            if broker.epoch > self.broker_epoch:
                code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
                self._give_up(code, replaced(self.identity.node_id))
                return
        elif broker is None or broker.epoch != self.broker_epoch:
            self._register_again()
            return
        if self._in_flight is None and self._due_ms == NEVER_MS:
            self._ask_in(RETRY_MS)

    def _register_again(self) -> None:
        """The controller knows this incarnation no longer; nothing that it holds was lost."""
        why = f"broker epoch {self.broker_epoch}"
        self._effects.append(Say("the registration is no longer valid", why))
        self._previous_epoch = self.broker_epoch
        self.state, self._in_flight = State.REGISTERING_AGAIN, None
        self._ask()

    # Leaving.

    def _shut_down(self, _event: Event) -> None:
        if self.state in (State.NEW, State.REGISTERING):
            self._leave("")
        elif self.state is State.REGISTERING_AGAIN:
            self._leave("it was not registered")
        else:
            self.state, self._in_flight, self._tries = State.LEAVING, None, 0
            self._failures.stop_looking()
            self._limit_ms = self._now_ms + SHUTDOWN_MS
            self._ask()

    def _leave_answered(self, event: Answered) -> None:
        if event.ask is not self._in_flight:
            return
        self._in_flight = None
        may_stop = event.response.should_shut_down
        if may_stop or (event.response.error_code and self._is_counted_out()):
            self._leave("")
        else:
            self._ask_in(self._pause_ms())

    def _is_counted_out(self) -> bool:
        """Whether the metadata knows this registration no longer. A refusal alone may come from a
        controller that was replaced and does not know it."""
        broker = self._standing.image.brokers.get(self.identity.node_id)
        return broker is None or broker.epoch != self.broker_epoch

    def _leave_unanswered(self, event: Unanswered) -> None:
        if event.ask is self._in_flight:
            self._leave(event.why)

    def _remember(self, _event: Event) -> None:
        """What the next request says anyway."""

    def _ignore(self, _event: Event) -> None:
        """It came too late to change anything."""


Act = Callable[[Registration, Any], None]
_OF_HEARTBEATS: dict[type[Event], Act] = {
    Answered: Registration._heartbeat_answered,
    Unanswered: Registration._heartbeat_unanswered,
    MetadataMoved: Registration._look_whether_in,
    FoldersChanged: Registration._folders_changed,
    ControllerFound: Registration._beat_now,
    ShutDown: Registration._shut_down,
}
_OF_REGISTERING: dict[type[Event], Act] = {
    Answered: Registration._registration_answered,
    Unanswered: Registration._registration_unanswered,
    MetadataMoved: Registration._remember,
    FoldersChanged: Registration._remember,
    ControllerFound: Registration._refused_anew,
    ShutDown: Registration._shut_down,
}
TABLE: dict[State, dict[type[Event], Act]] = {
    State.NEW: {
        Start: Registration._start,
        MetadataMoved: Registration._remember,
        FoldersChanged: Registration._remember,
        ControllerFound: Registration._remember,
        ShutDown: Registration._shut_down,
    },
    State.REGISTERING: _OF_REGISTERING,
    State.FENCED: {**_OF_HEARTBEATS, LogsOpen: Registration._logs_are_open},
    State.ENTERING: _OF_HEARTBEATS,
    State.UNFENCED: _OF_HEARTBEATS,
    State.STALE: {
        **_OF_HEARTBEATS,
        MetadataMoved: Registration._look_why,
        LogsOpen: Registration._logs_are_open,
    },
    State.REGISTERING_AGAIN: {
        **_OF_REGISTERING,
        LogsOpen: Registration._logs_are_open,
        FoldersChanged: Registration._folders_changed,
    },
    State.LEAVING: {
        Answered: Registration._leave_answered,
        Unanswered: Registration._leave_unanswered,
        MetadataMoved: Registration._remember,
        LogsOpen: Registration._ignore,
        FoldersChanged: Registration._remember,
        ControllerFound: Registration._remember,
        ShutDown: Registration._ignore,
    },
    State.ENDED: dict.fromkeys(
        (Answered, Unanswered, MetadataMoved, LogsOpen, FoldersChanged, ControllerFound, ShutDown),
        Registration._ignore,
    ),
}
"""State -> event -> what is done. A pair that is missing cannot happen: the shell has a bug."""
