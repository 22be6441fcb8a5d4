"""What a broker's report of full folders does: the record that keeps it, and who gives way.

Not here: who gives way to whom (`full_folders.py`), when a folder is full (`core/log/room.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.controller.brokers.membership import Consequences
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason
from anabranch.core.metadata.image import BrokerImage
from anabranch.core.types import TopicId, topic_id_text
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.metadata_records import BrokerRegistrationChangeRecord, MetadataRecord
from anabranch.core.wire.own_fields import FullDirectories, has_own, untagged


def change_room(
    consequences: Consequences, broker: BrokerImage, request: BrokerHeartbeatRequest
) -> tuple[list[MetadataRecord], tuple[Reason, ...]]:
    """What follows from the folders that a broker reports as full; nothing for what is known, and
    of a broker whose version does not tell."""
    told = untagged(FullDirectories, request.unknown_tagged_fields)
    before, full = set(broker.full_log_dirs), set(map(bytes, told.ids)) & set(broker.log_dirs)
    if full == before or not has_own(request):
        return [], ()
    ordered = [each for each in broker.log_dirs if each in full]
    change = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, full_log_dirs=ordered
    )
    consequences.full[broker.broker_id] = ordered
    records = [change, *consequences.gives_way(broker.broker_id)]
    return records, tuple(_said(broker.broker_id, full - before, before - full))


def _said(broker_id: int, filled: set[bytes], freed: set[bytes]) -> Iterator[Reason]:
    """Which folders changed their state."""
    details = {"broker_id": broker_id}
    if filled:
        sentence = f"broker {broker_id} has no space in folder {_named(filled)}"
        yield Reason(Code.FOLDER_FULL, sentence, details)
    if freed:
        sentence = f"broker {broker_id} has space again in folder {_named(freed)}"
        yield Reason(Code.FOLDER_HAS_ROOM, sentence, details)


def _named(folders: set[bytes]) -> str:
    return ", ".join(sorted(topic_id_text(TopicId(each)) for each in folders))
