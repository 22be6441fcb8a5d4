"""Which store a URL names, and what is said of one that names none."""

from __future__ import annotations

import re
import sys

import pytest

from anabranch.core.errors import StorageFault
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.keys import shown


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "names no known store"),
        ("/var/objects", "names no known store"),
        ("http://host/bucket", "names no known store"),
        ("file://objects", "must be absolute"),
        ("file://", "must be absolute"),
        ("file:///no/such/folder", "create the folder, or mount"),
    ],
)
async def test_a_url_that_names_no_store_is_refused(url, said):
    with pytest.raises(StorageFault, match=said):
        await open_objects(url)


@pytest.mark.parametrize("url", ["", "http://host/bucket", "file://objects", "s3://", "s3://b?x=1"])
async def test_the_setting_that_has_the_url_is_named(url):
    for setting in ("diskless.storage.url", "remote.storage.url"):
        with pytest.raises(StorageFault) as caught:
            await open_objects(url, setting)
        assert re.findall(r"(?:diskless|remote)\.storage\.url", str(caught.value)) == [setting]


async def test_without_its_package_a_cloud_s_store_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "anabranch.stores.objects.cloud", raising=False)
    with pytest.raises(StorageFault, match=r"pip install obstore"):
        await open_objects("s3://bucket/prefix?secret_access_key=hush")


def test_a_url_is_shown_without_its_secrets():
    url = "s3://id:hush@bucket/prefix?access_key_id=a&secret_access_key=hush"
    assert shown(url) == "s3://bucket/prefix"
