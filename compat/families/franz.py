"""franz-go, the Go client: `clients/franz/main.go` prints what it saw."""

from __future__ import annotations

import json

from compat.clients import CACHE, fetch_franz
from compat.peer import Peer
from compat.row import row


@row("franz-group", prepare=fetch_franz)
def shares_a_group(peer: Peer) -> object:
    """Idempotent zstd records, two cooperative members, offsets, lags and a deleted group."""
    program = CACHE / "franz" / "franz"
    return json.loads(peer.command(program, peer.bootstrap, "franz-group", seconds=90).out)


@row("franz-transactions", prepare=fetch_franz)
def transacts(peer: Peer) -> object:
    """Transactions are committed and aborted, a group's sessions copy, a second producer fences."""
    words = (CACHE / "franz" / "franz", peer.bootstrap, "franz-transactions", "transactions")
    return json.loads(peer.command(*words, seconds=90).out)
