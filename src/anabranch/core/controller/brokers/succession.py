"""May this process take a broker's place, and do its folders hold what that broker had?

What: the two questions of a registration under an id that is registered already. (1) The old
incarnation keeps its place while its session is valid, unless it is known to have ended: its
connection closed (or this controller never heard it) and nobody answers at its address, or the new
process has that very address and the same folders, which only one process of a machine can have.
(2) Folders that show the last incarnation's epoch were closed by it; folders that have seen the
last incarnation lost at most what a crash takes; others are older copies, each by itself, unless
their broker epoch is newer than any that is known: then the metadata were put back. Rules kept: a
copied folder displaces no broker that sends heartbeats; and no replica in an older copy leads
before it was in sync again, unless an operator asks for an unclean election. Source: KIP-631,
KIP-966; (1) and the third case of (2) are ours. Not here: finding out that a process is gone
(`hints.py`).
"""

from __future__ import annotations

from enum import Enum

from anabranch.core.controller.brokers.sessions import Sessions
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import BrokerImage
from anabranch.core.wire.messages.broker_registration import BrokerRegistrationRequest
from anabranch.core.wire.own_fields import FolderHistory, untagged


class Folders(Enum):
    """What the folders of a registration hold, beside what the last incarnation had."""

    CLOSED = "they were closed by the last incarnation"
    CRASHED = "the last incarnation crashed on them"
    OLDER = "they are older than the last incarnation"


def check_succession(
    existing: BrokerImage, sessions: Sessions, request: BrokerRegistrationRequest, now_ms: int
) -> None:
    """Refuse a process whose broker is alive in another. Raises DUPLICATE_BROKER_REGISTRATION."""
    registered = existing.broker_id, existing.epoch
    if existing.incarnation_id == request.incarnation_id:
        return
    if not sessions.valid(*registered, now_ms) or registered in sessions.gone:
        return
    if sessions.is_out_of_touch(*registered) and _has_its_place(existing, request):
        return
    raise ClientFault(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"Broker {existing.broker_id} is registered and was heard from. If it was recently "
        "restarted, this resolves itself when its old process is found gone or its session ends.",
    )


def _has_its_place(existing: BrokerImage, request: BrokerRegistrationRequest) -> bool:
    here = {(each.host, each.port) for each in request.listeners}
    there = {(each.host, each.port) for each in existing.endpoints.values()}
    return here == there and not set(existing.log_dirs).isdisjoint(request.log_dirs)


def folders_of(existing: BrokerImage, request: BrokerRegistrationRequest) -> Folders:
    """What a new incarnation's folders are, by the worst of them."""
    if request.previous_broker_epoch == existing.epoch:
        return Folders.CLOSED
    return Folders.OLDER if older_folders(existing, request) else Folders.CRASHED


def older_folders(existing: BrokerImage, request: BrokerRegistrationRequest) -> frozenset[bytes]:
    """The ids of the folders that are older copies. One that does not tell what it has seen (it is
    of Kafka or of an earlier version) is believed to be the last incarnation's, and so is one that
    the last incarnation did without, as while its disk was broken. All are when the last
    incarnation was of such a version, to which the node went back for a while: no folder can have
    seen it."""
    if not existing.is_noted:
        return frozenset()
    history = untagged(FolderHistory, request.unknown_tagged_fields)
    return frozenset(
        folder.directory_id
        for folder in history.folders
        if folder.directory_id in existing.log_dirs
        and existing.incarnation_id not in folder.incarnation_ids
        and folder.broker_epoch <= existing.epoch
    )
