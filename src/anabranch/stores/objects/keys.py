"""Names of objects that every store takes, and what sentences about stores have in common."""

from __future__ import annotations

import re

from anabranch.core.diskless.objects import ObjectMissing
from anabranch.core.errors import StorageFault

_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._=-]*(/[A-Za-z0-9_-][A-Za-z0-9._=-]*)*")
MOST_KEY_BYTES = 512
"""S3 takes 1,024 with the prefix, a file system 255 for each part."""


def check_key(key: str, url: str) -> None:
    """A key comes from the coordinator's database: it must not lead out of the store. Raises
    StorageFault."""
    if len(key) > MOST_KEY_BYTES or not _KEY.fullmatch(key):
        raise StorageFault(f"{url}: {key[:MOST_KEY_BYTES]!r} cannot be an object's name")


def short_object(url: str, key: str, size: int, position: int, length: int) -> ObjectMissing:
    """What to raise for a range that an object does not have."""
    return ObjectMissing(
        f"{url}: object {key} has {size} bytes; those from {position} to {position + length} "
        "are missing"
    )


def shown(url: str) -> str:
    """A store's URL without options and passwords: it goes into logs and sentences."""
    return re.sub(r"(//)[^/@]*@", r"\1", url.partition("?")[0])
