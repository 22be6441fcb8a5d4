"""Requests with handlers of the test's own, on a real loopback socket."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace

from anabranch.core.api.handler import Handler
from anabranch.core.step import Mailbox
from anabranch.core.wire.frame import frame_request, read_response
from anabranch.core.wire.messages import API_KEYS
from anabranch.server.listener import Acceptor
from anabranch.server.receive_memory import ReceiveMemory
from anabranch.server.request_shell import RequestShell

SECONDS = 20


class Shell:
    """Does at once what a node would do in its own time."""

    def __init__(self):
        self.proposals = []
        self.forwarded = []

    def submit(self, proposal):
        future = asyncio.get_running_loop().create_future()
        self.proposals.append((proposal, future))
        return future

    async def forward(self, frame, request):
        self.forwarded.append(bytes(frame))
        return struct.pack(">i", request.correlation_id) + b"answer"


def limits(**changed):
    values = {
        "socket_request_max_bytes": 8 << 20,
        "max_connections": 100,
        "max_connections_per_ip": 100,
        "max_connections_per_ip_overrides": "",
        "sasl_server_max_receive_size": 512 << 10,
        "socket_listen_backlog_size": 50,
        "socket_receive_buffer_bytes": 102_400,
        "socket_send_buffer_bytes": 102_400,
        "static": {},
        "connections_max_idle_ms": 600_000,
    }
    return SimpleNamespace(**{**values, **changed})


class Client:
    """A client that sends bytes and reads whole frames."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    def send(self, correlation_id, body, version):
        frame = b"".join(map(bytes, frame_request(correlation_id, "test", body, version)))
        self.writer.write(frame)

    async def frame(self):
        async with asyncio.timeout(SECONDS):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def answer(self, api_key, version):
        return read_response(await self.frame(), API_KEYS[api_key].response, version)

    async def ended(self):
        async with asyncio.timeout(SECONDS):
            return await self.reader.read() == b""


class Service:
    """The requests of a role and their listener; `connect` gives clients."""

    def __init__(self, handlers, **changed):
        self.shell = Shell()
        self.mailbox = Mailbox()
        self.changed = self.mailbox.changed
        self.world = SimpleNamespace(changed=self.changed)
        self.serving = RequestShell(
            "broker", self.world, handlers, self.mailbox,
            submit=lambda proposal: self.shell.submit(proposal),
            pass_on=lambda frame, request: self.shell.forward(frame, request),
        )  # fmt: skip
        self.requests = self.serving.requests
        self.memory = ReceiveMemory(changed.pop("queued_max_request_bytes", -1))
        settings = limits(**changed)
        self.acceptor = Acceptor("TEST", self.serving, self.memory, lambda: settings)
        self.port = 0
        self.clients = []

    async def connect(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        self.clients.append(writer)
        return Client(reader, writer)

    async def close(self):
        for writer in self.clients:
            writer.close()
        self.acceptor.stop_accepting()
        await self.serving.stop()
        await self.acceptor.drain(0)


def handler(api_key, run):
    """A handler of an API key in all its versions."""
    spec = API_KEYS[api_key]
    return Handler(api_key, spec.name, spec.versions, broker=run)


async def eventually(condition):
    """Wait on a condition, not on a time."""
    try:
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110 - the condition has no event of its own
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"what was awaited did not happen within {SECONDS} s") from None
