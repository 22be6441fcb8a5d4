"""What a simulated broker does for its diskless topics: makes the calls, and tells what they gave.

What: performs the effects of `broker.diskless` in one life of a node: each becomes a call of the
simulated store or coordinator; the registration of the broker epoch and the watch are kept up. A
call under way outlives the process that made it. `linger` lets a process whose node has crashed
write on, as a process does that was thought to be dead: two writers then have one broker id. Rule
kept: nothing is decided here. Not here: garbage, retention, rows (`diskless_upkeep.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.core.diskless import effects as does
from anabranch.core.diskless.admission import Admitted, Refused, Register, Step, admission
from anabranch.core.diskless.broker import Diskless
from anabranch.core.diskless.pause import Pause
from anabranch.core.diskless.rows import Change, LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.partition.bringers import apart
from anabranch.core.types import NEVER_MS
from anabranch.sim.chains import Chain, Told
from anabranch.sim.coordinator import COMPACTION, REMOTE, TIERING, Watch
from anabranch.sim.processes import Process, State
from anabranch.stores.coordinator.compaction_tables import CompactionTables

if TYPE_CHECKING:
    from anabranch.core.outcome import Cold
    from anabranch.sim.node_life import NodeLife
    from anabranch.sim.processes import Timer
    from anabranch.sim.remotes import Remotes

MOST_RINGS = 20
"""At one moment: a timer that rings more often will do so for ever."""


class DisklessPerformer:
    """See the module."""

    def __init__(self, node: NodeLife, remotes: Remotes) -> None:
        self.node = node
        self.world = node.world
        self.name = node.name
        self.remotes = remotes
        self.broker = node.broker
        self.machine: Diskless = node.broker.diskless
        self._process: Process = node
        self._life = node.life
        self._watch: Watch | None = None
        self._watches = 0
        self._timer: Timer | None = None
        self._timer_ms = NEVER_MS
        self.noted: dict[LogKey, int] = {}
        """Starts that manifests of this process would have."""
        self.machine.note_changes = self._note
        self._is_begun = False
        self._rings, self._rang_us = 0, -1

    @property
    def is_alive(self) -> bool:
        """Whether its process still runs."""
        return self._process.life == self._life

    def _note(self, changes: Sequence[Change]) -> None:
        for key, state, _ in changes:
            if state is not None:
                self.noted[key] = max(state.start_offset, self.noted.get(key, 0))

    def unnoted(self) -> list[LogKey]:
        """Partitions that are known to begin later than what was noted."""
        known = ((key, each.start_offset) for key, each in self.machine.by_key.items())
        return [key for key, start in known if start > self.noted.get(key, 0)]

    def start(self) -> None:
        """The process speaks now."""
        self._is_begun = True
        self.machine.start(interval_ms=self.remotes.interval_ms)
        self._open_watch()

    def registered(self) -> None:
        """The controller gave the process its epoch: the coordinator must know it, too."""
        Chain(admission(self.broker), self._admit).go_on()

    def linger(self) -> None:
        """The node has crashed, and this process goes on beside its next life."""
        former = Process(f"{self.name}/former-{self._life}")
        former.state = State.RUNNING
        self._process, self._life, self._timer = former, former.life, None
        self.name = former.name
        self._step(lambda: None)

    def end(self) -> None:
        """A process that lingered does nothing any more."""
        self._process.life += 1

    # Steps.

    def _step(self, act: Callable[[], None]) -> None:
        """Do something in a step of its own."""
        if self._process is self.node:
            self.node.begin()
            act()
            self.node.settle()
            return
        self.broker.steady_ms = self.world.steady_ms
        act()
        self.broker.changed.clear()
        self.perform()

    def _hop(self, act: Callable[..., None], *args: Any) -> None:
        """What a remote tells is an event of the process; of a paused one, later."""
        if self.is_alive:
            self.world.after_in(self._process, 0, act, *args)

    def perform(self) -> None:
        """Do what the machine wants done by now."""
        if not self._is_begun:
            return
        for effect in self.machine.take_effects():
            _TABLE[type(effect)](self, effect)
        self._arm()

    def _arm(self) -> None:
        due_ms = self.machine.next_tick_ms
        if self._timer is not None and self._timer_ms <= due_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if due_ms < NEVER_MS:
            self._timer_ms = due_ms
            delay_us = max(0, due_ms * 1000 - self.world.now_us)
            self._timer = self.world.after_in(self._process, delay_us, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._rings = self._rings + 1 if self._rang_us == self.world.now_us else 0
        self._rang_us = self.world.now_us
        if self._rings > MOST_RINGS:
            raise AssertionError(f"{self.name}: what is due at {self._timer_ms} ms stays due")
        self._step(self.machine.ring)

    # Reads.

    def bring(self, cold: Cold) -> None:
        """Have what a request lacks asked for; it goes on when all of it has ended."""
        warmed, asked = apart(cold.reads)
        for read in warmed:
            read.warm()
        self.broker.bringers.bring(asked, partial(self.broker.changed.setdefault, cold))

    # Calls.

    def _done(self, effect: does.Effect) -> Callable[[Any], None]:
        def told(result: Any) -> None:
            self._step(lambda: self.machine.answered(effect, result, self.world.steady_ms))

        return lambda result: self._hop(told, result)

    def _ask(self, effect: does.Effect, name: str, *args: Any) -> None:
        self.remotes.coordinator.ask(self.name, name, args, self._done(effect))

    def _prepare(self, effect: does.PrepareObjects) -> None:
        identity = self.machine.writing.identity
        epoch = identity.broker_epoch
        self._ask(effect, "prepare", identity.broker_id, epoch, effect.count, effect.lease_ms)

    def _put(self, effect: does.PutObject) -> None:
        done, name = self._done(effect), self.name

        def told(result: Any) -> None:
            happens = None if result else self.remotes.after_put.pop(name, None)
            if happens is not None:
                self.world.after(0, happens)
            done(result)

        self.remotes.objects.put(name, effect.object_key, effect.buffers, told)

    def _end_puts(self, effect: does.EndPuts) -> None:
        """A call that was made may be done, and answered: the machine does not listen to it."""

    def _commit(self, effect: does.CommitObject) -> None:
        if self._process is not self.node:
            self.remotes.met.add("two-writers")
        self._ask(effect, "commit", effect.commit)

    def _outcome(self, effect: does.AskOutcome) -> None:
        self._ask(effect, "outcome", effect.object_key)

    def _refuse(self, effect: does.RefuseObjects) -> None:
        self._ask(effect, "refuse", effect.object_ids)

    def _states(self, effect: does.AskStates) -> None:
        self._ask(effect, "states", effect.keys)

    def _find(self, effect: does.FindRuns) -> None:
        self._ask(effect, "find", effect.wanted)

    def _by_time(self, effect: does.FindByTime) -> None:
        if effect.timestamp is None:
            self._ask(effect, "newest", effect.key)
        else:
            self._ask(effect, "by_time", effect.key, effect.timestamp, effect.first)

    def _delete_before(self, effect: does.DeleteBefore) -> None:
        self._ask(effect, "delete_before", list(effect.wanted))

    def _read(self, effect: does.ReadObject) -> None:
        done = self._done(effect)
        self.remotes.objects.read(self.name, effect.object_key, effect.ranges, done)

    def _look_at_facts(self, effect: does.LookAtFacts) -> None:
        self._ask(effect, f"{REMOTE}look", effect.key)

    def _call_claims(self, effect: does.CallClaims) -> None:
        room = COMPACTION if hasattr(CompactionTables, effect.call) else TIERING
        self._ask(effect, f"{room}{effect.call}", *effect.arguments)

    def _read_on(self, effect: does.ReadOn) -> None:
        """Calls of the simulator share no connection that could be held up."""

    def _admit(self, step: Step, told: Told) -> None:
        """See `admission`."""
        match step:
            case Pause(pause_ms):
                self.world.after_in(self._process, pause_ms * 1000, told, None)
            case Register():
                self.remotes.coordinator.ask(self.name, "register", step, _hopping(self, told))
            case Admitted(epoch):
                cluster_id, now_ms = self.broker.cluster_id, self.world.steady_ms
                self._step(lambda: self.machine.registered(cluster_id, epoch, now_ms))
                told(None)
            case Refused(epoch, why):
                now_ms = self.world.steady_ms
                self._step(lambda: self.machine.deposed(epoch, why, now_ms))
                told(None)
            case _:
                told(None)

    # The watch.

    def _open_watch(self) -> None:
        self._watches += 1
        number = self._watches

        def told(result: Any) -> None:
            if isinstance(result, StorageFault):
                self._open_again(self.machine.watch_broken())
                return
            self._watch = result
            if result.is_open:
                self._step(self.machine.watch_opened)

        def hear(changes: list[Change]) -> None:
            if number == self._watches:
                self._hear(changes)

        coordinator = self.remotes.coordinator
        coordinator.watch(self.name, hear, self._broken, _hopping(self, told))

    def told(self, changes: list[Change]) -> None:
        """Partitions moved: what the watch tells, or a round of retention."""
        self._step(lambda: self.machine.changed(changes))

    def _hear(self, changes: list[Change]) -> None:
        if self.is_alive:
            self._hop(lambda: self.told(changes))
        elif self._watch is not None:
            self._watch.close()

    def _broken(self) -> None:
        def told() -> None:
            pauses_ms: list[int] = []
            self._step(lambda: pauses_ms.append(self.machine.watch_broken()))
            self._open_again(*pauses_ms)

        self._hop(told)

    def _open_again(self, pause_ms: int) -> None:
        if pause_ms:
            self.world.after_in(self._process, pause_ms * 1000, self._open_watch)
        else:
            self._open_watch()


def _hopping(performer: DisklessPerformer, told: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda result: performer._hop(told, result)


_TABLE: dict[type, Callable[[DisklessPerformer, Any], None]] = {
    does.PrepareObjects: DisklessPerformer._prepare,
    does.PutObject: DisklessPerformer._put,
    does.EndPuts: DisklessPerformer._end_puts,
    does.CommitObject: DisklessPerformer._commit,
    does.AskOutcome: DisklessPerformer._outcome,
    does.RefuseObjects: DisklessPerformer._refuse,
    does.AskStates: DisklessPerformer._states,
    does.FindRuns: DisklessPerformer._find,
    does.FindByTime: DisklessPerformer._by_time,
    does.DeleteBefore: DisklessPerformer._delete_before,
    does.ReadObject: DisklessPerformer._read,
    does.LookAtFacts: DisklessPerformer._look_at_facts,
    does.CallClaims: DisklessPerformer._call_claims,
    does.ReadOn: DisklessPerformer._read_on,
}
