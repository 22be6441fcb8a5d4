"""The event loop of a node, and services that end with their test."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parent))

from server_kit import Service


def pytest_asyncio_loop_factories():
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def serve():
    services = []

    async def start(*handlers, **changed):
        service = Service({each.api_key: each for each in handlers}, **changed)
        service.serving.own_faults.watch(asyncio.get_running_loop())
        service.port = await service.acceptor.bind("127.0.0.1", 0)
        services.append(service)
        return service

    yield start
    for service in services:
        await service.close()
