"""SCRAM credentials of users (KIP-554, KIP-900).

Rule kept: what is removed exists; anything else raises `Bug`. Not here: logins, which read them
(`core/access/scram_server.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.access.scram_credential import ScramCredential
from anabranch.core.errors import Bug
from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.wire import metadata_records as records


def _set(builder: ImageBuilder, record: records.UserScramCredentialRecord) -> None:
    builder.changing("scram")[record.mechanism, record.name] = ScramCredential(
        salt=bytes(record.salt),
        stored_key=bytes(record.stored_key),
        server_key=bytes(record.server_key),
        iterations=record.iterations,
    )


def _remove(builder: ImageBuilder, record: records.RemoveUserScramCredentialRecord) -> None:
    credentials, key = builder.changing("scram"), (record.mechanism, record.name)
    if key not in credentials:
        raise Bug(f"a record removes a SCRAM credential of {record.name!r}, which does not exist")
    del credentials[key]


RULES: Rules = {
    records.UserScramCredentialRecord: _set,
    records.RemoveUserScramCredentialRecord: _remove,
}


def snapshot(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    """Every credential, by mechanism and user."""
    for (mechanism, name), each in sorted(image.scram.items()):
        yield records.UserScramCredentialRecord(
            name=name, mechanism=mechanism, salt=each.salt, stored_key=each.stored_key,
            server_key=each.server_key, iterations=each.iterations,
        )  # fmt: skip
