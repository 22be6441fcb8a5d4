"""The event loop of a node."""

from __future__ import annotations

import uvloop


def pytest_asyncio_loop_factories():
    return {"uvloop": uvloop.new_event_loop}
