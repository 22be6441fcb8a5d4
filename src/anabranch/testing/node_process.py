"""A node of a test's cluster as a process: `python -m anabranch.testing.node_process`.

What: `server.main` with a loop, files and a clock that can fail. The first line of standard input
says how to start, as JSON; each later one asks for something and is answered by one line on
standard output, once the node serves. Faults are read from the memory of a file that the test has
open too (`faults.py`). Rule kept: when standard input ends, the test is gone, and so is this
process, also while it starts.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from asyncio import AbstractEventLoop, get_running_loop
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.server.node import Node

GONE = 1
STATISTICS = "statistics"


def main() -> int:
    """Serve until told to stop; the exit code."""
    from anabranch.server import logs
    from anabranch.server.clocks import AHEAD_MS
    from anabranch.server.config import ConfigError, load_config
    from anabranch.server.main import failed, run
    from anabranch.testing.faults import NodeFaults
    from anabranch.testing.faulty_files import FaultyFiles
    from anabranch.testing.faulty_loop import FaultyLoop

    order = json.loads(sys.stdin.readline() or "{}")
    if not order:
        return GONE
    faults = NodeFaults.shared(order["faults"])
    peers = {int(port): broker_id for port, broker_id in order["peers"].items()}
    AHEAD_MS.set(faults.cells)
    logs.configure(order["log_level"])
    try:
        config = load_config(None, [f"{name}={text}" for name, text in order["settings"].items()])
    except ConfigError as fault:
        return failed(str(fault))
    conversation = Conversation()
    threading.Thread(target=conversation.listen, daemon=True).start()
    return run(
        config, conversation.begin,
        loop_factory=lambda: FaultyLoop(faults, peers, frozenset(order["controllers"])),
        files=FaultyFiles(faults),
    )  # fmt: skip


class Conversation:
    """With the test, over standard input and output."""

    def __init__(self) -> None:
        self._served: tuple[Node, AbstractEventLoop] | None = None

    def begin(self, node: Node) -> None:
        """Tell that clients are served; questions are answered from now on."""
        self._served = node, get_running_loop()
        port = int(node.bootstrap_servers.rpartition(":")[2])
        say({"cluster_id": node.cluster_id, "port": port})

    def listen(self) -> None:
        """Answer, on a thread of its own, until the test is gone."""
        for line in sys.stdin:
            if self._served is not None and json.loads(line)["ask"] == STATISTICS:
                self._answer(*self._served)
        os._exit(GONE)

    @staticmethod
    def _answer(node: Node, loop: AbstractEventLoop) -> None:
        from anabranch.testing.counts import statistics_of

        loop.call_soon_threadsafe(lambda: say({STATISTICS: statistics_of(node)}))


def say(answer: dict[str, Any]) -> None:
    """One line for the test."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
