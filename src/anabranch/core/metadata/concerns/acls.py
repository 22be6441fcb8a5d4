"""Access control lists (KIP-801).

Rule kept: as in Kafka, a rule is added under a new id and removed by an id that exists; anything
else raises `Bug`.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.access.acls import Acl
from anabranch.core.errors import Bug
from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.wire import metadata_records as records


def _add(builder: ImageBuilder, record: records.AccessControlEntryRecord) -> None:
    acl_id, acls = bytes(record.id), builder.changing("acls")
    if acl_id in acls:
        raise Bug(f"a record adds the ACL {acl_id.hex()}, which exists")
    acl = Acl(
        record.resource_type, record.pattern_type, record.resource_name, record.principal,
        record.host, record.operation, record.permission_type,
    )  # fmt: skip
    acls.add(acl_id, acl)


def _remove(builder: ImageBuilder, record: records.RemoveAccessControlEntryRecord) -> None:
    acl_id, acls = bytes(record.id), builder.changing("acls")
    if acl_id not in acls:
        raise Bug(f"a record removes the ACL {acl_id.hex()}, which does not exist")
    acls.remove(acl_id)


RULES: Rules = {
    records.AccessControlEntryRecord: _add,
    records.RemoveAccessControlEntryRecord: _remove,
}


def snapshot(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    """Every rule, by its id."""
    for acl_id, acl in sorted(image.acls.by_id.items()):
        yield entry(acl_id, acl)


def entry(acl_id: bytes, acl: Acl) -> records.AccessControlEntryRecord:
    """The record that adds a rule."""
    return records.AccessControlEntryRecord(
        id=acl_id, resource_type=acl.resource_type, resource_name=acl.resource_name,
        pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host,
        operation=acl.operation, permission_type=acl.permission,
    )  # fmt: skip
