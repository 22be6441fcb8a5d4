"""sarama, the other Go client: `clients/sarama/main.go` prints what it saw."""

from __future__ import annotations

import json

from compat.clients import CACHE, fetch_sarama
from compat.peer import Peer
from compat.row import row


@row("sarama-transactions", prepare=fetch_sarama)
def transacts(peer: Peer) -> object:
    """Transactions are committed and aborted, a group copies record by record, a second producer
    fences."""
    program = CACHE / "sarama" / "sarama"
    return json.loads(peer.command(program, peer.bootstrap, "sarama-transactions", seconds=90).out)
