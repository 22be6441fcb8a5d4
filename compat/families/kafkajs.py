"""kafkajs, the JavaScript client: `clients/kafkajs.js` prints what it saw of each scenario."""

from __future__ import annotations

import json
import os

from compat.clients import CACHE, HERE, fetch_kafkajs
from compat.peer import Peer
from compat.row import row


def kafkajs(peer: Peer, scenario: str) -> object:
    """What the program saw in one of its scenarios."""
    modules = {**os.environ, "NODE_PATH": str(CACHE / "kafkajs" / "node_modules")}
    words = ("node", HERE / "kafkajs.js", peer.bootstrap, scenario)
    return json.loads(peer.command(*words, env=modules, seconds=90).out)


@row("kafkajs-admin", prepare=fetch_kafkajs)
def administers(peer: Peer) -> object:
    """Topics are created, listed, described, configured, widened and deleted."""
    return kafkajs(peer, "administers")


@row("kafkajs-refused", prepare=fetch_kafkajs)
def is_refused(peer: Peer) -> object:
    """An illegal name, no partitions, an illegal configuration are refused by name."""
    return kafkajs(peer, "isRefused")


@row("kafkajs-gzip", prepare=fetch_kafkajs)
def compresses(peer: Peer) -> object:
    """Records with keys and headers, compressed with gzip, reach a group's member."""
    return kafkajs(peer, "compresses")


@row("kafkajs-idempotent", prepare=fetch_kafkajs)
def sends_idempotently(peer: Peer) -> object:
    """The idempotent producer's records are there once."""
    return kafkajs(peer, "sendsIdempotently")


@row("kafkajs-offsets", prepare=fetch_kafkajs)
def asks_for_offsets(peer: Peer) -> object:
    """Offsets of topics, by time too, and records deleted before an offset."""
    return kafkajs(peer, "asksForOffsets")


@row("kafkajs-group", prepare=fetch_kafkajs)
def shares_a_group(peer: Peer) -> object:
    """Two members share a topic, one inherits it; the group is described, listed and deleted."""
    return kafkajs(peer, "sharesAGroup")


@row("kafkajs-seek", prepare=fetch_kafkajs)
def seeks(peer: Peer) -> object:
    """A member seeks to an offset."""
    return kafkajs(peer, "seeks")


@row("kafkajs-pause", prepare=fetch_kafkajs)
def pauses(peer: Peer) -> object:
    """A member pauses one partition, reads the other, and resumes."""
    return kafkajs(peer, "pausesAndResumes")


@row("kafkajs-transactions", prepare=fetch_kafkajs)
def transacts(peer: Peer) -> object:
    """Transactions are committed and aborted, offsets go with them, a second producer fences."""
    return kafkajs(peer, "transacts")


@row("kafkajs-commit", prepare=fetch_kafkajs)
def commits(peer: Peer) -> object:
    """Offsets are committed with metadata, fetched, reset and set; members go on from there."""
    return kafkajs(peer, "commits")
