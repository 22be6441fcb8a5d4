"""Which store a URL names, and what is said of one that names none."""

from __future__ import annotations

import pytest

from anabranch.core.errors import StorageFault
from anabranch.server.objects.opening import open_objects, shown


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "names no known store"),
        ("/var/objects", "names no known store"),
        ("http://host/bucket", "names no known store"),
        ("file://objects", "must be absolute"),
        ("file://", "must be absolute"),
        ("file:///no/such/folder", "make the folder, or mount"),
    ],
)
async def test_a_url_that_names_no_store_is_refused(url, said):
    with pytest.raises(StorageFault, match=said):
        await open_objects(url)


def test_a_url_is_shown_without_its_secrets():
    url = "s3://id:hush@bucket/prefix?access_key_id=a&secret_access_key=hush"
    assert shown(url) == "s3://bucket/prefix"
