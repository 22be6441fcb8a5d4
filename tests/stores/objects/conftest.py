"""Every kind of store, empty, for the one suite that all of them pass.

`ANABRANCH_TEST_STORES` may name more of them, as URLs in which `PREFIX` stands for a new prefix:
emulators of other clouds, or a bucket in one.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

import pytest
from bench.s3_moto import s3_endpoint

sys.path.insert(0, str(Path(__file__).parent))

from anabranch.stores.objects.engines import open_objects

NAMES = itertools.count()
SECRET = "hush-hush-hush"


@pytest.fixture(scope="session")
def s3():
    """The endpoint of an S3 server on loopback with one bucket, `bucket`: moto's, or the one that
    ANABRANCH_TEST_S3 names (`compat/real_s3.py`)."""
    if real := os.environ.get("ANABRANCH_TEST_S3"):
        yield real
        return
    with s3_endpoint() as endpoint:
        yield endpoint


def s3_url(endpoint: str, bucket: str = "bucket") -> str:
    return (
        f"s3://{bucket}/tests/{next(NAMES)}?endpoint={endpoint}&region=us-east-1"
        f"&access_key_id=an-id&secret_access_key={SECRET}"
    )


OTHERS = os.environ.get("ANABRANCH_TEST_STORES", "").split()


@pytest.fixture(params=["folder", "memory", "s3", *OTHERS], ids=lambda each: each.partition(":")[0])
def url(request, tmp_path):
    if "://" in request.param:
        return request.param.replace("PREFIX", f"tests/{time.time_ns()}/{next(NAMES)}")
    if request.param == "folder":
        return f"file://{tmp_path}"
    if request.param == "memory":
        return f"memory://test-{next(NAMES)}"
    return s3_url(request.getfixturevalue("s3"))


@pytest.fixture
async def store(url):
    store = await open_objects(url)
    yield store
    await store.close()
