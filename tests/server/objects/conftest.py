"""Every kind of store, empty, for the one suite that all of them pass."""

from __future__ import annotations

import itertools

import pytest

from anabranch.server.objects.opening import open_objects

NAMES = itertools.count()


@pytest.fixture(params=["folder", "memory"])
def url(request, tmp_path):
    if request.param == "folder":
        return f"file://{tmp_path}"
    return f"memory://test-{next(NAMES)}"


@pytest.fixture
async def store(url):
    store = await open_objects(url)
    yield store
    await store.close()
