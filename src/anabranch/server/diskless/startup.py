"""Opens a node's coordinator and object store, also when they come later than the node.

What: tries them once at the start; while one of them does not answer the node starts all the same,
and they are tried again until they do. Why: classic topics need neither. Rules kept: what does not
pass (a URL that names nothing, another cluster's bucket, missing rights, a newer schema, an older
copy of the coordinator) refuses the start with a sentence; found later, it leaves the node running
for its classic topics and is an error in the log, which a metric shows; nothing is asked of a
store, and no row of a coordinator is made, before all checks have passed; what is waited for is
said every so often. Not here: the checks (`stores.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.diskless.objects import ObjectsAway
from anabranch.core.errors import StorageFault
from anabranch.server.clocks import steady_ms
from anabranch.server.diskless.shell import unforeseen
from anabranch.server.diskless.stores import Stores, has_stores
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected

if TYPE_CHECKING:
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.server.config import NodeConfig

LOG = logger("diskless")

PATIENCE_S = 5.0
"""How long a start waits for the first answer: one that comes later finds the node running."""
RETRY_S = 1.0
"""Between two tries: a store that returns is used soon."""
WORDS_MS = 30_000
"""Between two lines about what is waited for."""


class StoresAtStart:
    """The stores of one node. `on_waiting` is told why they cannot be used."""

    def __init__(self, config: NodeConfig, cluster_id: str) -> None:
        self._config, self._cluster_id = config, cluster_id
        self._of = _what_needs_them(config.broker)
        self.is_on = has_stores(config.broker)
        self.stores: Stores | None = None
        """None until they were opened and tried."""
        self.why = ""
        """Why there are none yet."""
        self.on_waiting: Callable[[str], None] = lambda _: None
        self._wanted: list[Callable[[Stores], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._trying: asyncio.Task[None] | None = None
        """The first try, which a start that is interrupted leaves behind."""
        self._said_ms = -WORDS_MS

    async def begin(self) -> None:
        """Try once, and go on trying when there is no answer. Raises StorageFault for what does not
        pass."""
        if not self.is_on:
            return
        first = self._trying = asyncio.get_running_loop().create_task(self._open())
        done, _ = await asyncio.wait({first}, timeout=PATIENCE_S)
        if done and (fault := first.exception()) is None:
            return
        if done and not isinstance(fault, ObjectsAway | CoordinatorAway):
            first.result()
        if not done:
            self._say(ObjectsAway(f"no answer for {PATIENCE_S:g} s"))
        self._task = asyncio.get_running_loop().create_task(self._go_on(first))

    def then(self, call: Callable[[Stores], None]) -> None:
        """Call with the stores, now or once there are any."""
        if self.stores is not None:
            call(self.stores)
        else:
            self._wanted.append(call)

    async def stop(self) -> None:
        """Try no more, and let go of what is open."""
        tasks = [each for each in (self._task, self._trying) if each is not None]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.stores is not None:
            await self.stores.close()

    def abandon(self) -> None:
        """See `Node.abandon`."""
        if self.stores is not None:
            self.stores.abandon()

    async def _open(self) -> None:
        self.stores = await Stores.open(self._config, self._cluster_id)
        self.why = ""

    async def _go_on(self, trying: asyncio.Task[None]) -> None:
        try:
            while True:
                try:
                    await trying
                    break
                except StorageFault as fault:
                    self._say(fault)
                except Exception as fault:  # a node without its stores says so, and goes on
                    tell_unexpected(fault, f"opening the stores of {self._of}")
                    self._say(unforeseen(fault))
                await asyncio.sleep(RETRY_S)
                trying = asyncio.get_running_loop().create_task(self._open())
        finally:
            trying.cancel()
        LOG.info(f"coordinator and object store of {self._of} answer")
        assert self.stores is not None
        for call in self._wanted:
            call(self.stores)

    def _say(self, fault: StorageFault) -> None:
        is_new, self.why = str(fault) != self.why, str(fault)
        self.on_waiting(self.why)
        now_ms = steady_ms()
        if is_new or now_ms - self._said_ms >= WORDS_MS:
            self._said_ms = now_ms
            if isinstance(fault, ObjectsAway | CoordinatorAway):
                LOG.warning(f"{self._of} wait for their stores", why=self.why)
            else:
                LOG.error(f"{self._of} are refused until this is corrected", why=self.why)


def _what_needs_them(broker: BrokerConfig) -> str:
    both = {
        "diskless topics": broker.diskless_storage_system_enable,
        "remote logs": broker.remote_log_storage_system_enable,
    }
    return " and ".join(what for what, is_on in both.items() if is_on)
