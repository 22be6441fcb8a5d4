"""A metadata log of Apache Kafka 4.1 with ACLs, SCRAM credentials and quotas, as its own tools made
it: the image that replay gives is what its dump tool says, and our snapshot gives it again."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from anabranch.core.access.acls import Acl
from anabranch.core.metadata.batches import decode_batches, encode_snapshot, understood
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records

FOLDER = Path(__file__).parent / "data" / "kafka-4.1-security"
LOG = FOLDER / "00000000000000000000.log"
DUMP = LOG.with_suffix(".txt")


def replayed():
    image = MetadataImage.empty()
    for batch in understood(LOG.read_bytes()):
        image, _ = replay_batch(image, batch.records, batch.last_offset, 1)
    return image


def dumped():
    """What is left of the dump's records when each is taken as Kafka's documentation says."""
    acls, scram, quotas = {}, {}, {}
    for line in DUMP.read_text().splitlines():
        _, found, payload = line.partition("payload: ")
        record = json.loads(payload) if found else {"type": "", "data": {}}
        values = record["data"]
        match record["type"]:
            case "ACCESS_CONTROL_ENTRY_RECORD":
                names = (
                    "resourceType", "patternType", "resourceName", "principal", "host", "operation",
                    "permissionType",
                )  # fmt: skip
                acls[values["id"]] = Acl(*(values[name] for name in names))
            case "REMOVE_ACCESS_CONTROL_ENTRY_RECORD":
                del acls[values["id"]]
            case "USER_SCRAM_CREDENTIAL_RECORD":
                keys = [
                    base64.b64decode(values[name]) for name in ("salt", "storedKey", "serverKey")
                ]
                scram[values["mechanism"], values["name"]] = (*keys, values["iterations"])
            case "REMOVE_USER_SCRAM_CREDENTIAL_RECORD":
                del scram[values["mechanism"], values["name"]]
            case "CLIENT_QUOTA_RECORD":
                parts = {each["entityType"]: each["entityName"] for each in values["entity"]}
                key = frozenset(parts.items()), values["key"]
                quotas.pop(key, None)
                if not values["remove"]:
                    quotas[key] = values["value"]
    return acls, scram, quotas


def held(image):
    """The same of an image."""
    acls = {
        base64.urlsafe_b64encode(acl_id).decode().rstrip("="): acl
        for acl_id, acl in image.acls.by_id.items()
    }
    scram = {
        key: (each.salt, each.stored_key, each.server_key, each.iterations)
        for key, each in image.scram.items()
    }
    quotas = {
        (frozenset(entity), key): value
        for entity, values in image.quotas.items()
        for key, value in values.items()
    }
    return acls, scram, quotas


def test_replay_gives_what_kafkas_dump_tool_says():
    acls, scram, quotas = held(replayed())
    assert (acls, scram, quotas) == dumped()
    assert sorted(acls.values()) == [
        Acl(2, 3, "orders", "User:alice", "10.0.0.1", 3, 3),
        Acl(2, 4, "secret-", "User:*", "*", 2, 2),
        Acl(4, 3, "kafka-cluster", "User:bob", "*", 8, 3),
    ]
    assert [(key, each[0], each[3]) for key, each in scram.items()] == [
        ((1, "alice"), b"saltsaltsalt", 4096)
    ]
    assert quotas == {
        (frozenset({("user", "alice"), ("client-id", "c1")}), "consumer_byte_rate"): 2048.0,
        (frozenset({("user", None)}), "request_percentage"): 50.0,
        (frozenset({("ip", "127.0.0.9")}), "connection_creation_rate"): 7.0,
    }


def test_our_snapshot_of_it_is_read_again_equal():
    image = replayed()
    data = encode_snapshot(
        snapshot_records(image), epoch=image.epoch, last_contained_ms=0, now_ms=0
    )
    read = [record for batch in decode_batches(data) for record in batch.records]
    assert from_snapshot(read, image.next_offset, image.epoch) == image
