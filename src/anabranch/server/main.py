"""The process of one node: event loop, signals, limits, exit code.

`run` serves until SIGTERM or SIGINT and returns the exit code: 0 after an orderly stop, 1 when the
node could not start or had to stop by itself. What went wrong is one line on standard error, unless
the caller tells it in another way.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.server.logs import logger
from anabranch.server.service_manager import READY, STOPPING, notify

if TYPE_CHECKING:
    from anabranch.server.config import NodeConfig
    from anabranch.server.files import RealFiles
    from anabranch.server.node import Node

LOG = logger("main")

STDIN = 0
STDIN_BYTES = 4096
COLLECTED_AFTER = (1_000, 50, 1_000)
"""How many objects more than before until the youngest are looked at, how many such passes until
those are that have outlived one, and how many of these until all are, after fifty million: requests
make few cycles, and a full collection stalls all. So does the start, which reads the metadata of
all partitions. A pass holds up the loop for as long as there are objects to look at, and where
metadata is replaced there are many more than it counts: while 100,000 partitions changed on a busy
machine it took up to 22 ms with 5,000 and up to 71 ms with 1,000 in the first two places, and takes
7 ms at most, as long in all."""
SWITCH_SECONDS = 0.0005
"""How long a thread that computes keeps the loop waiting, each time that something has come. A
snapshot of the metadata takes a second in its thread, a request some ten turns of the loop: at
Python's 5 ms each of them would take 50 ms longer meanwhile."""


def run(
    config: NodeConfig,
    on_ready: Callable[[Node], None] | None = None,
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    files: RealFiles | None = None,
    stop_with_stdin: bool = False,
    tell_failure: Callable[[str], None] | None = None,
) -> int:
    """Serve one node in this process until it is told to stop; the exit code. A loop and files of
    another kind are for tests that rehearse faults. `stop_with_stdin`: the end of standard input
    counts as SIGTERM, so that a node does not outlive the process that holds the other end.
    `tell_failure` is given why the node failed, in one line."""
    raise_open_files_limit()
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=loop_factory or new_loop) as runner:
        return runner.run(
            serve(
                config, on_ready, files, stop_with_stdin=stop_with_stdin,
                tell_failure=tell_failure or to_stderr,
            )
        )  # fmt: skip


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def serve(
    config: NodeConfig,
    on_ready: Callable[[Node], None] | None = None,
    files: RealFiles | None = None,
    *,
    stop_with_stdin: bool = False,
    tell_failure: Callable[[str], None],
) -> int:
    """Start a node, wait for a signal, stop it."""
    from anabranch.core.errors import ApiError, StorageFault
    from anabranch.server.node import Node

    gc.set_threshold(*COLLECTED_AFTER)
    for warning in config.warnings:
        LOG.warning(warning)
    node = Node(config, files)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, ended.set)
    if stop_with_stdin:
        loop.add_reader(STDIN, stdin_readable, loop, ended)
    starting = loop.create_task(node.start())
    stopping = loop.create_task(ended.wait())
    try:
        first = (starting, stopping, node.stopped)
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
            why = node.stopped.result()
            return failed(why, tell_failure) if why else 0
        await starting
    except (ApiError, StorageFault, OSError) as fault:
        return failed(str(fault), tell_failure)
    settle_memory()
    from anabranch.server.free_memory import give_back

    giving_back = loop.create_task(give_back())
    if on_ready is not None:
        on_ready(node)
    at = f" at {node.bootstrap_servers}" if config.is_broker else ""
    notify(READY, f"Node {config.node_id} serves{at}.")
    await asyncio.wait((stopping, node.stopped), return_when=asyncio.FIRST_COMPLETED)
    giving_back.cancel()
    notify(STOPPING, "Handing over leaderships, then flushing logs.")
    why = node.stopped.result() if node.stopped.done() else ""
    try:
        await node.stop()
    except (ApiError, StorageFault, OSError) as fault:
        why = why or str(fault)
    return failed(why, tell_failure) if why else 0


def stdin_readable(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Read and forget what came; at the end of input, or without an input, stop the node."""
    try:
        come = os.read(STDIN, STDIN_BYTES)
    except OSError:
        come = b""
    if not come:
        loop.remove_reader(STDIN)
        ended.set()


def to_stderr(why: str) -> None:
    """For people, and for the supervisor that shows the last words of a node."""
    sys.stderr.write(f"Error: {why}\n")


def failed(why: str, tell: Callable[[str], None] = to_stderr) -> int:
    """Tell it in one line; the exit code that goes with it."""
    tell(" ".join(why.split()))
    return 1


def settle_memory() -> None:
    """What was made at start stays: the collector need not walk it again."""
    gc.collect()
    gc.freeze()


def raise_open_files_limit() -> None:
    """Take as many descriptors as the system grants without asking (segments, connections)."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            LOG.warning("the limit on open files stays", limit=soft)
