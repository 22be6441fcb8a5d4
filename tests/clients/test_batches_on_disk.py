"""Batches that three clients wrote, as they lie on the node's disk: our decoder reads them all (R5).

An oracle for core/wire: nobody here wrote these bytes, and the client knows what it put into them.
"""

from __future__ import annotations

import pytest
from tests.clients.adapters import CODECS, Sent

from anabranch.core.wire.batch import crc_is_valid, walk
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import decode_records

RECORDS = [
    Sent(
        None if number % 7 == 0 and number % 5 else b"key-%d" % number,
        None if number % 5 == 0 else b"value " * (number % 90),
        tuple((f"h{each}", bytes([each])) for each in range(number % 4)),
        1_700_000_000_000 + (number * 37) % 1000,
    )
    for number in range(300)
]


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_what_a_client_wrote_is_on_disk_and_decodes(node, client, new_topic, codec, idempotent):
    topic = new_topic()
    client.produce(topic, RECORDS, codec=codec, idempotent=idempotent)
    found = (node.folder / f"{topic}-0" / "00000000000000000000.log").read_bytes()
    read, codecs = [], set()
    for position, header in walk(found):
        assert crc_is_valid(found, position, header.size_bytes)
        assert (header.producer_id >= 0) == idempotent
        codecs.add(Codec(header.codec).name.lower())
        decoded = decode_records(found, position)
        assert header.max_timestamp == max(each.timestamp for each in decoded)
        read += decoded
    assert [each.offset for each in read] == list(range(len(RECORDS)))
    assert [Sent(each.key, each.value, each.headers, each.timestamp) for each in read] == RECORDS
    assert codec in codecs
