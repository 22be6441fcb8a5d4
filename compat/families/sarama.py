"""sarama, the other Go client: `clients/sarama` prints what it saw."""

from __future__ import annotations

import json
from typing import Any

from compat.clients import CACHE, fetch_sarama
from compat.families.secure import MECHANISMS, PASSWORD, WAYS, SecurePeer, secured
from compat.peer import Peer
from compat.row import row

PROGRAM = CACHE / "sarama" / "sarama"


@row("sarama-transactions", prepare=fetch_sarama)
def transacts(peer: Peer) -> object:
    """Transactions are committed and aborted, a group copies record by record, a second producer
    fences."""
    return json.loads(peer.command(PROGRAM, peer.bootstrap, "sarama-transactions", seconds=90).out)


@row("secure-sarama", prepare=fetch_sarama)
def carries_records(peer: Peer) -> object:
    """sarama writes and reads in a group with each mechanism over TLS and with a certificate, and
    is told of a wrong password."""
    with secured(peer) as here:
        carried = {way: _carried(here, way) for way in WAYS}
        return carried, {way: _carried(here, way, "wrong") for way in MECHANISMS}


def _carried(here: SecurePeer, way: str, password: str = PASSWORD) -> Any:
    how = {"authority": here.authority.certificate}
    if way == "certificate":
        how |= {"chain": here.alice.chain, "key": here.alice.key}
    else:
        how |= {"mechanism": way, "username": "alice", "password": password}
    words = (PROGRAM, here.address(way), f"sarama-{way.lower()}", "secure")
    return json.loads(here.command(*words, text=json.dumps(how), seconds=90).out)
