"""Is that process still there? Dialling a listener, and watching a connection to it end.

What: `dial` tries one address until somebody listens, nobody does, or time is up. `Watch` holds an
idle connection to another controller; when it ends it dials once more and tells when nobody listens
there any more. Why: the kernel of a machine whose process died says so at once, where a session
takes seconds. Rule kept: an answer is a hint and nothing more; what follows from it is decided
elsewhere (`core/controller/brokers/hints.py`), or rests on the lease's epochs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from anabranch.core.controller.brokers.hints import REDIAL_MS, Answer

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
    except (OSError, TimeoutError, UnicodeError):  # the last for what is not a host name
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
