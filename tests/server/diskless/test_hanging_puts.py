"""Puts that never end, on a real broker: producers are answered all the same, and they are ended."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka.admin import AdminClient
from tests.server.diskless.test_three_brokers import make, read, write

from anabranch.stores.objects.folder import FolderStore
from anabranch.testing import LocalCluster

HANGING = 3


@pytest.mark.slow
async def test_batches_are_acknowledged_though_puts_hang_for_ever(monkeypatch):
    put, hung, ended = FolderStore.put, set(), []

    async def hangs_at_first(self, key, buffers):
        if "/wal/" not in key or key in hung or len(hung) == HANGING:
            return await put(self, key, buffers)
        hung.add(key)
        try:
            return await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(key)
            raise

    monkeypatch.setattr(FolderStore, "put", hangs_at_first)
    values = [b"%d" % number for number in range(3 * HANGING)]

    def through() -> list[bytes]:
        with LocalCluster(brokers=1) as cluster:
            servers = cluster.bootstrap_servers
            make(AdminClient({"bootstrap.servers": servers, "log_level": 0}), "hung", 1)
            for value in values:
                write(servers, "hung", [value], **{"enable.idempotence": True})
            return [value for _, value in read(servers, "hung", len(values))]

    assert await asyncio.to_thread(through) == values
    assert len(hung) == HANGING
    assert set(ended) == hung
