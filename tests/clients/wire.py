"""A listener that a test holds in its hand: each client's connections can be cut or held.

What: clients connect here, and the node advertises this port for them, so that every frame of
theirs passes. Why: a member that crashes or hangs is then one call, in the test's own process, for
every client library. Connections are told apart by the client id in their first frame. Rule kept:
what is held stays in order and is delivered on release; what is cut is never delivered.

Not here: what frames mean, but for the client id, the generations that JoinGroup answers, and
heartbeats that are answered with an error, which tell a member that it was put out.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import NamedTuple

from anabranch.core.wire.frame import read_request_header, read_response
from anabranch.core.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.core.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

SECONDS = 20
DIAL_AGAIN_SECONDS = 0.02
WATCHED = {
    JoinGroupRequest.api_key: JoinGroupResponse,
    HeartbeatRequest.api_key: HeartbeatResponse,
}
PUT_OUT = (22, 25, 82)
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""


async def read_frame(reader):
    size = await reader.readexactly(4)
    return await reader.readexactly(int.from_bytes(size))


class Line(NamedTuple):
    """One connection of a client with the one to the node behind it."""

    client_id: str
    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]

    def close(self):
        for writer in self.writers:
            writer.transport.abort()


class Wire:
    """The listener. `port` is what the node advertises; `target` is where the node listens."""

    def __init__(self, target):
        self.target = target
        self.port = None
        self.generations = {}
        self.put_out = {}
        self._lines = []
        self._gone = set()
        self._held = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self):
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def bootstrap(self):
        return f"127.0.0.1:{self.port}"

    def stop(self):
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)

    def cut(self, client_id):
        """Close the client's connections, now and whenever it makes one: it is as good as dead."""
        self._do(self._cut(client_id))

    def hold(self, client_id):
        """Deliver nothing to or from the client until `release`."""
        self._do(self._hold(client_id))

    def release(self, client_id):
        """Deliver what was held, and what comes."""
        self._loop.call_soon_threadsafe(lambda: self._held.pop(client_id).set())

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(SECONDS)

    async def _cut(self, client_id):
        self._gone.add(client_id)
        for line in self._lines:
            if line.client_id == client_id:
                line.close()

    async def _hold(self, client_id):
        self._held[client_id] = asyncio.Event()

    async def _end(self):
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader, writer):
        try:
            first = await read_frame(reader)
            client_id = read_request_header(memoryview(first)).client_id
            node_reader, node_writer = await self._dial(client_id)
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
            return
        line = Line(client_id, (writer, node_writer))
        self._lines.append(line)
        asked = {}
        await asyncio.gather(
            self._requests(line, first, reader, node_writer, asked),
            self._answers(line, node_reader, writer, asked),
        )
        self._lines.remove(line)

    async def _dial(self, client_id):
        """Connect to the node; while it is down, the client waits as if the network were slow.

        A connection that is closed before ApiVersions is answered tells librdkafka of a very old
        broker, with which it then speaks an old protocol for a while.
        """
        while client_id not in self._gone:
            try:
                return await asyncio.open_connection("127.0.0.1", self.target)
            except OSError:
                await asyncio.sleep(DIAL_AGAIN_SECONDS)
        raise ConnectionAbortedError

    async def _requests(self, line, frame, reader, writer, asked):
        """Pass requests on until an end closes; note those whose answer is looked at."""
        try:
            while True:
                api_key = int.from_bytes(frame[:2])
                if api_key in WATCHED:
                    asked[frame[4:8]] = WATCHED[api_key], int.from_bytes(frame[2:4])
                await self._deliver(line, frame, writer)
                frame = await read_frame(reader)
        except (OSError, asyncio.IncompleteReadError):
            line.close()

    async def _answers(self, line, reader, writer, asked):
        """Pass answers on until an end closes; note what members are told."""
        try:
            while True:
                frame = await read_frame(reader)
                if frame[:4] in asked:
                    _, answer = read_response(frame, *asked.pop(frame[:4]))
                    self._note(line.client_id, answer)
                await self._deliver(line, frame, writer)
        except (OSError, asyncio.IncompleteReadError):
            line.close()

    def _note(self, client_id, answer):
        if answer.error_code in PUT_OUT:
            self.put_out.setdefault(client_id, []).append(time.monotonic())
        elif isinstance(answer, JoinGroupResponse) and answer.error_code == 0:
            self.generations[client_id] = answer.generation_id

    async def _deliver(self, line, frame, writer):
        if line.client_id in self._held:
            await self._held[line.client_id].wait()
        writer.write(len(frame).to_bytes(4) + frame)
        await writer.drain()
