"""How the coordinator comes to know a broker by its epoch, and what it means to be deposed.

What: `admission` is a generator for one broker epoch. It yields a pause, the call that registers,
or what came of it; it is thrown the fault of a call that failed. Rules kept: nothing is taken from
producers before the coordinator knows the epoch; the call is made again until it succeeds or the
broker has another epoch, for which another admission runs. `Deposed` ends it: the coordinator knows
a newer epoch of this broker and never goes back, so that asking again is in vain. Not here: what
happens to batches of a broker that was deposed (`Diskless.deposed`), I/O
(`server/diskless/shell.py`, `sim/diskless.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, Protocol, TypeAlias

from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.pause import Pause
from anabranch.core.errors import StorageFault

RETRY_MS = 300
"""Before a call that failed is made again."""
DEPOSED = (
    "{}; another process has this broker's place, or this cluster's metadata is older than its "
    "coordinator: then put the newest metadata back and restart the broker"
)


class BrokerView(Protocol):
    """What an admission reads of its broker."""

    @property
    def broker_id(self) -> int:
        """Its id."""

    @property
    def broker_epoch(self) -> int:
        """The epoch that the controller gave it last."""


class Register(NamedTuple):
    """coordinator.register"""

    broker_id: int
    broker_epoch: int


class Waiting(NamedTuple):
    """The call failed and is made again."""

    fault: StorageFault


class Admitted(NamedTuple):
    """The coordinator knows the broker by this epoch."""

    broker_epoch: int


class Refused(NamedTuple):
    """The coordinator never accepts this epoch."""

    broker_epoch: int
    why: str


Step: TypeAlias = Pause | Register | Waiting | Admitted | Refused


def admission(broker: BrokerView) -> Generator[Step, object, None]:
    """Have the coordinator know the broker's present epoch."""
    epoch = broker.broker_epoch
    while epoch == broker.broker_epoch:
        try:
            yield Register(broker.broker_id, epoch)
        except Deposed as fault:
            if epoch == broker.broker_epoch:  # else by this very process, with its newer epoch
                yield Refused(epoch, DEPOSED.format(fault))
            return
        except StorageFault as fault:
            yield Waiting(fault)
            yield Pause(RETRY_MS)
        else:
            if epoch == broker.broker_epoch:
                yield Admitted(epoch)
            return
