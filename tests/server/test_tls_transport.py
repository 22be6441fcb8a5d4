"""The transport of TLS with its peer in memory: bytes in any pieces, in both directions, to the end."""

from __future__ import annotations

import asyncio
import gc
import ssl
from random import Random

import pytest

from anabranch.server.tls_transport import Handshakes, TlsTransport
from anabranch.testing.certificates import Authority


class Raw:
    """A socket in memory."""

    def __init__(self):
        self.sent = bytearray()
        self.is_open = self.reads = True

    def write(self, data):
        self.sent += data

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True

    def close(self):
        self.is_open = False

    abort = close

    def is_closing(self):
        return not self.is_open

    def get_write_buffer_size(self):
        return 0

    def get_extra_info(self, _name, default=None):
        return default


class Above:
    """A connection that keeps what comes, in buffers of any size."""

    host = "peer"

    def __init__(self, random, refusal=""):
        self.random, self.refusal = random, refusal
        self.goes_on_after_the_end = False
        self.taken, self.has_ended, self.is_secured = bytearray(), False, False

    def connection_made(self, transport):
        self.transport = transport

    def secured(self, _tls):
        self.is_secured = True
        if isinstance(self.refusal, Exception):
            raise self.refusal
        return self.refusal

    def get_buffer(self, _hint):
        self.buffer = memoryview(bytearray(self.random.choice([1, 100, 5_000, 100_000])))
        return self.buffer

    def buffer_updated(self, size):
        self.taken += self.buffer[:size]
        if self.random.random() < 0.2:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(0.001, self.transport.resume_reading)

    def eof_received(self):
        self.has_ended = True
        return self.goes_on_after_the_end

    def connection_lost(self, _fault):
        """The test looks at the socket."""


class Guard:
    def __init__(self, identity):
        self.failed = []
        self.made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.made.load_cert_chain(identity.chain, identity.key)

    def context(self):
        return self.made

    def handshake_failed(self, _host, why):
        self.failed.append(why)


class Peer:
    """A client in memory."""

    def __init__(self, authority, raw, transport):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(authority.certificate)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.raw, self.transport = raw, transport
        self.read = bytearray()

    def give(self, size):
        """What waits goes to the node, `size` bytes at most, if it reads."""
        if not self.raw.reads or not self.raw.is_open:
            return
        data = self.outgoing.read(size)
        if data:
            self.transport.get_buffer(-1)[: len(data)] = data
            self.transport.buffer_updated(len(data))

    def take(self):
        self.incoming.write(bytes(self.raw.sent))
        self.raw.sent.clear()
        while True:
            try:
                data = self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                return
            if not data:
                return
            self.read += data

    async def shake(self, random, above):
        while not above.is_secured:
            try:
                self.tls.do_handshake()
                self.give(1 << 16)
                await asyncio.sleep(0.001)
            except ssl.SSLWantReadError:
                self.give(random.choice([1, 50, 10_000]))
                await asyncio.sleep(0.001)
                self.incoming.write(bytes(self.raw.sent))
                self.raw.sent.clear()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


def made(authority, random, refusal=""):
    guard, above, raw = Guard(authority.issue("node")), Above(random, refusal), Raw()
    handshakes = Handshakes()
    transport = TlsTransport(guard, handshakes, above)
    transport.connection_made(raw)
    return guard, above, raw, transport, handshakes


@pytest.mark.parametrize("seed", range(12))
async def test_bytes_arrive_whole_and_in_order_in_both_directions(authority, seed):
    random = Random(seed)
    guard, above, raw, transport, handshakes = made(authority, random)
    peer = Peer(authority, raw, transport)
    await asyncio.wait_for(peer.shake(random, above), 20)
    sent, answered = bytearray(), bytearray()
    for _ in range(30):
        data = random.randbytes(random.choice([1, 1_000, 20_000, 300_000]))
        if random.random() < 0.5:
            sent += data
            peer.tls.write(data)
        else:
            answered += data
            halves = [data[: len(data) // 2], memoryview(data)[len(data) // 2 :]]
            random.choice(
                [lambda d=data: transport.write(d), lambda h=halves: transport.writelines(h)]
            )()
        peer.give(random.choice([10, 5_000, 200_000]))
        peer.take()
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        while above.taken != sent:
            peer.give(1 << 18)
            await asyncio.sleep(0.001)
    peer.take()
    assert peer.read == answered and not guard.failed
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    async with asyncio.timeout(20):
        while not above.has_ended:
            peer.give(1 << 18)
            await asyncio.sleep(0.001)
    assert not raw.is_open
    handshakes.stop()


async def test_nothing_leaves_in_plain_text(authority):
    random = Random(1)
    _guard, above, raw, transport, handshakes = made(authority, random)
    transport.write(b"before the handshake")
    assert not raw.sent
    peer = Peer(authority, raw, transport)
    await asyncio.wait_for(peer.shake(random, above), 20)
    transport.write(b"secret" * 100)
    assert raw.sent and b"secret" not in raw.sent
    handshakes.stop()


async def test_a_client_that_may_not_stay_is_let_go_after_its_handshake(authority):
    random = Random(1)
    guard, above, raw, transport, handshakes = made(authority, random, "no rule fits")
    peer = Peer(authority, raw, transport)
    await asyncio.wait_for(peer.shake(random, above), 20)
    peer.tls.write(b"request")
    for _ in range(5000):
        if not raw.is_open:
            break
        peer.give(1 << 16)
        await asyncio.sleep(0.001)
    assert guard.failed == ["no rule fits"] and not raw.is_open and not above.taken
    handshakes.stop()


async def test_changed_bytes_end_the_connection(authority):
    random = Random(1)
    guard, above, raw, transport, handshakes = made(authority, random)
    peer = Peer(authority, raw, transport)
    await asyncio.wait_for(peer.shake(random, above), 20)
    async with asyncio.timeout(20):
        while not raw.reads or peer.outgoing.pending:
            peer.give(1 << 16)
            await asyncio.sleep(0.001)
    peer.tls.write(b"request")
    data = bytearray(peer.outgoing.read())
    data[-1] ^= 1
    transport.get_buffer(-1)[: len(data)] = data
    transport.buffer_updated(len(data))
    assert not raw.is_open and not above.taken and "cannot be decrypted" in guard.failed[0]
    handshakes.stop()


def watched():
    """What no code of the loop has caught."""
    found = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: found.append(context))
    return found


@pytest.mark.parametrize("said", [b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n\r\n", bytes(5_000)])
@pytest.mark.parametrize("end", ["connection_lost", "abort", "close"])
async def test_the_end_during_a_step_of_the_handshake_is_no_fault(authority, said, end):
    faults = watched()
    _guard, _above, _raw, transport, handshakes = made(authority, Random(1))
    transport.get_buffer(-1)[: len(said)] = said
    transport.buffer_updated(len(said))
    getattr(transport, end)(*[None][: end == "connection_lost"])
    await asyncio.sleep(0.1)
    del transport
    gc.collect()
    await asyncio.sleep(0)
    assert not faults
    handshakes.stop()


async def test_what_comes_after_the_end_is_not_kept(authority):
    """A connection may run what it was sent before it closes; its peer could fill the memory."""
    random = Random(1)
    _guard, above, raw, transport, handshakes = made(authority, random)
    above.goes_on_after_the_end = True
    peer = Peer(authority, raw, transport)
    await asyncio.wait_for(peer.shake(random, above), 20)
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    async with asyncio.timeout(20):
        while not above.has_ended:
            peer.give(1 << 18)
            await asyncio.sleep(0.001)
    for _ in range(50):
        transport.get_buffer(-1)[:100_000] = bytes(100_000)
        transport.buffer_updated(100_000)
        await asyncio.sleep(0)
    assert raw.is_open and transport._incoming.pending < 1 << 18
    handshakes.stop()


async def test_a_client_that_cannot_be_told_by_its_certificate_does_not_stay(authority):
    random, faults = Random(1), watched()
    _guard, above, raw, transport, handshakes = made(authority, random, ValueError("no name"))
    peer = Peer(authority, raw, transport)
    await asyncio.wait_for(peer.shake(random, above), 20)
    assert not raw.is_open and len(faults) == 1 and not above.taken
    handshakes.stop()
