"""The epochs of a fetch session, as the one that fetches and the one that answers count them.

A request of epoch INITIAL_EPOCH asks for a new session, or for none; FINAL_EPOCH ends one. Source:
KIP-227. Not here: what a session holds (`core/api/fetch_sessions.py`, `fetcher.py`).
"""

from __future__ import annotations

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1


def next_epoch(epoch: int) -> int:
    """Epochs run from 1 to 2^31-1 and begin again at 1."""
    return epoch + 1 if epoch < 2**31 - 1 else 1
