"""Is that process still there? Dialling a listener, and watching a connection to it end.

What: `dial` tries one address until somebody listens, nobody does, or time is up. `Probing` does so
for brokers whose connection to the controller closed. `Watch` holds an idle connection to another
controller; when it ends it dials once more and tells when nobody listens there any more. Why: the
kernel of a machine whose process died says so at once, where a session takes seconds. Rule kept: an
answer is a hint and nothing more; what follows from it is decided elsewhere
(`core/controller/brokers/hints.py`), or rests on the lease's epochs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.controller.brokers.hints import REDIAL_MS, Answer, Probe, asks_again_in_ms
from anabranch.server.clocks import steady_ms

if TYPE_CHECKING:
    from anabranch.core.controller.controller import Controller
    from anabranch.core.controller.result import Result

REDIAL_S = REDIAL_MS / 1000
STAYS_S = 0.05
"""How long a connection has to last to show that somebody is there."""
AGAIN_S = 0.01
PAUSE_S = 0.1


async def dial(host: str, port: int, timeout_s: float = REDIAL_S) -> Answer:
    """SAME when somebody listens, REFUSED when the machine says that nobody does, else SILENCE.

    A process that is being killed loses its connections one by one, and its listener perhaps last:
    a connection that ends at once says nothing, so it is dialled again while there is time. Who it
    is that listens is not asked: another incarnation registers, which says more.
    """
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if await _stays(host, port):
                    return Answer.SAME
                await asyncio.sleep(AGAIN_S)
    except ConnectionRefusedError:
        return Answer.REFUSED
    except (OSError, TimeoutError, UnicodeError):  # the last for what is no name of a host
        return Answer.SILENCE


async def _stays(host: str, port: int) -> bool:
    """Whether a new connection is still there a moment later. Raises OSError when none is made."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        async with asyncio.timeout(STAYS_S):
            await reader.read(1)
    except TimeoutError:
        return True
    except ConnectionError:
        return False
    finally:
        writer.close()
    return False


class Probing:
    """Dials the brokers that the controller asks after; `decided` takes what follows from it."""

    def __init__(self, controller: Controller, decided: Callable[[Result[None]], None]) -> None:
        self._controller = controller
        self._decided = decided
        self._dials: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Dial whoever is to be dialled now."""
        for probe in self._controller.take_probes():
            work = self._dial(self._controller.epoch, probe)
            task = asyncio.get_running_loop().create_task(work)
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)

    def stop(self) -> None:
        """Dial nobody any more."""
        for task in self._dials:
            task.cancel()

    async def _dial(self, epoch: int, probe: Probe) -> None:
        """Ask, and ask again later where the answer said nothing and the broker stays silent."""
        controller = self._controller
        answer = await dial(probe.endpoint.host, probe.endpoint.port)
        if not controller.active or controller.epoch != epoch:
            return
        now_ms = steady_ms()
        result = controller.probed(probe, answer, now_ms)
        if result is not None:
            self._decided(result)
            return
        again_ms = asks_again_in_ms(probe, answer, now_ms)
        if again_ms is None:
            return
        await asyncio.sleep(again_ms / 1000)
        if controller.active and controller.epoch == epoch:
            controller.ask_again(probe, steady_ms())
            self.begin()


class Watch:
    """Looks at one address for as long as it is kept; `on_gone` is called once."""

    def __init__(self, endpoint: str, on_gone: Callable[[], None]) -> None:
        self.endpoint = endpoint
        self._on_gone = on_gone
        host, _, port = endpoint.rpartition(":")
        self._address = (host or "127.0.0.1", int(port))
        self._task = asyncio.get_running_loop().create_task(self._look())

    def stop(self) -> None:
        """Look no more."""
        self._task.cancel()

    async def _look(self) -> None:
        while True:
            was_there = await self._held_until_it_ends()
            if not was_there and await dial(*self._address) is Answer.REFUSED:
                self._on_gone()
                return
            await asyncio.sleep(0 if was_there else PAUSE_S)

    async def _held_until_it_ends(self) -> bool:
        """Hold a connection until the other side ends it; False when there was none to hold."""
        try:
            reader, writer = await asyncio.open_connection(*self._address)
        except (OSError, UnicodeError):
            return False
        try:
            with contextlib.suppress(OSError):
                await reader.read()
        finally:
            writer.close()
        return True
