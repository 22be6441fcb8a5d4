"""Three brokers of the server that a row is asked about, for rows that need more than one.

The cluster is that of the benchmark (`bench/trio.py`): the same start for both servers. It lives as
long as the row's block, in a folder of its own. `Three` is a peer like any other, so that a row
runs Kafka's tools at it as it does at one node.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.servers import ROOT

from compat import normal
from compat.peer import Peer

sys.path.append(str(ROOT / "bench"))
from trio import NODES, NUMBERS, TRIOS

LONG_SECONDS = 120.0
"""Until three nodes are a cluster, on a machine that does much else."""


class Three(Peer):
    """The three nodes as one peer; `start` starts those that do not run yet."""

    def start(self, numbers: Sequence[int] = NUMBERS) -> None:
        """Start these nodes, and wait until clients see them."""
        nodes = [self.server.nodes[number] for number in numbers]
        for node in nodes:
            node.launch()
        for node in nodes:
            node.await_port()

    def plain(self, text: str) -> str:
        """The text without addresses, ids and times."""
        nodes = self.server.nodes.values()
        names = {self.bootstrap: "<brokers>", str(self.scratch): "<scratch>"}
        names |= {node.bootstrap: "<broker>" for node in nodes}
        names |= {str(node.port): "<port>" for node in nodes}
        return normal.plain(text, names)


@contextmanager
def three(peer: Peer, running: Sequence[int] = NUMBERS) -> Iterator[Three]:
    """A cluster of which these nodes run; the others are known to it as controllers alone."""
    cluster = TRIOS[peer.name](work=peer.scratch)
    found = Three(cluster, peer.driver, peer.scratch / "three")
    try:
        found.start(running)
        if len(running) == NODES:
            cluster.settle()
        yield found
    finally:
        for node in cluster.nodes.values():
            if node.process is not None and node.is_alive:
                node.kill()
        peer.said += found.said
