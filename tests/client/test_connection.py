"""The wire client: what it says when a connection cannot be, ends, or answers nonsense."""

from __future__ import annotations

import asyncio
import os

import pytest
from kafka.partitioner.default import murmur2 as java_murmur2

from anabranch.client.cluster import Cluster, check, parse_addresses
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.partitioner import murmur2, partition_for
from anabranch.client.sasl import Login
from anabranch.client.security import Security
from anabranch.core.errors import ApiError, ClientFault, ErrorCode
from anabranch.core.wire.frame import frame_response, read_request_header
from anabranch.core.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataResponse
from anabranch.core.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeResponse


class Peer:
    """A loopback server that answers each frame with whatever `reply` makes of it."""

    def __init__(self, reply):
        self.reply = reply

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[1]

    async def __aexit__(self, *_):
        self.server.close()
        await self.server.wait_closed()

    async def _serve(self, reader, writer):
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = memoryview(await reader.readexactly(size))
                answer = self.reply(read_request_header(frame))
                if answer is None:
                    break
                writer.write(answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


def versions(header, *, newest=12) -> bytes:
    keys = [ApiVersion(api_key=3, min_version=0, max_version=newest),
            ApiVersion(api_key=18, min_version=0, max_version=4)]  # fmt: skip
    answer = ApiVersionsResponse(api_keys=keys)
    return b"".join(frame_response(header.correlation_id, answer, header.version))


async def test_a_refused_connection_names_the_address():
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1 cannot .*: nothing listens there"):
        await Connection.open("127.0.0.1", 1)


async def test_an_unknown_host_is_named():
    with pytest.raises(ConnectionLost, match=r"no host is known by the name no\.such\.invalid"):
        await Connection.open("no.such.invalid", 9092)


def test_a_url_is_told_from_an_address():
    with pytest.raises(ClientFault, match=r"is a URL; .* as in 127\.0\.0\.1:9092"):
        parse_addresses("http://127.0.0.1:9092/topics")


@pytest.mark.parametrize("host", ["a..b", "a" * 70])
async def test_a_name_that_no_host_can_have_is_said_to_be_none(host):
    with pytest.raises(ConnectionLost, match=f"{host}:9092 is not a host name"):
        await Connection.open(host, 9092)


async def test_a_port_that_speaks_something_else_is_named():
    async with Peer(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        with pytest.raises(ConnectionLost, match="does not speak the Kafka protocol"):
            await Connection.open("127.0.0.1", port)


TLS = Security(uses_tls=True)
LOGIN = Login("PLAIN", "alice", "never-shown")


@pytest.mark.parametrize("resets", [False, True])
async def test_a_node_that_ends_a_tls_handshake_is_named_with_the_property(resets):
    """A plaintext listener of Anabranch closes such connections; with bytes unread that is a
    reset."""

    async def serve(reader, writer):
        if not resets:
            await reader.read(1 << 16)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    told = f"^127.0.0.1:{port} closed the connection during the TLS.*set security.protocol to PLAIN"
    with pytest.raises(ConnectionLost, match=told):
        await Connection.open("127.0.0.1", port, ssl=TLS.context())
    server.close()


@pytest.mark.parametrize("knows_sasl", [False, True])
async def test_a_login_at_a_listener_without_sasl_is_told_as_such(knows_sasl):
    """Apache Kafka lists SaslHandshake on every listener, and refuses it there."""

    def reply(header):
        if header.api_key == 17:
            answer = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        else:
            keys = [ApiVersion(api_key=18, min_version=0, max_version=4)]
            if knows_sasl:
                keys.insert(0, ApiVersion(api_key=17, min_version=0, max_version=1))
            answer = ApiVersionsResponse(api_keys=keys)
        return b"".join(frame_response(header.correlation_id, answer, header.version))

    async with Peer(reply) as port:
        with pytest.raises(ClientFault, match=r"not ask for a login\. Set") as told:
            await Connection.open("127.0.0.1", port, login=LOGIN)
    assert "never-shown" not in str(told.value)


async def test_a_silent_port_times_out_with_a_question():
    async with Peer(lambda _: b"") as port:
        with pytest.raises(ConnectionLost, match="is it a Kafka listener"):
            await Connection.open("127.0.0.1", port, timeout_seconds=0.1)


@pytest.mark.parametrize("answers", [False, True])
async def test_a_connection_that_comes_to_nothing_is_let_go_of(answers):
    """Who asks a frozen node again and again must not gather sockets."""
    ended = asyncio.Event()

    async def serve(reader, writer):
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        if answers:
            refusal = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            writer.write(b"".join(frame_response(1, refusal, 4)))
        assert await reader.read() == b""
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ApiError if answers else TimeoutError):
        async with asyncio.timeout(5 if answers else 0.1):
            await Connection.open("127.0.0.1", port)
    async with asyncio.timeout(5):
        await ended.wait()
    server.close()


async def test_the_newest_version_of_both_sides_is_spoken():
    asked = []

    def reply(header):
        if header.api_key == 18:
            return versions(header, newest=7)
        asked.append(header.version)
        return b"".join(frame_response(header.correlation_id, MetadataResponse(), header.version))

    async with Peer(reply) as port:
        connection = await Connection.open("127.0.0.1", port)
        await asyncio.gather(*(connection.send(MetadataRequest(topics=[])) for _ in range(5)))
        await connection.close()
    assert asked == [7] * 5


async def test_an_old_node_that_refuses_the_newest_api_versions_is_asked_again():
    def reply(header):
        if header.version > 0:
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            return b"".join(frame_response(header.correlation_id, refusal, 0))
        return versions(header)

    async with Peer(reply) as port:
        connection = await Connection.open("127.0.0.1", port)
        assert connection.versions[3] == (0, 12)
        await connection.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda header: None, "ended"),
        (lambda header: (4).to_bytes(4, "big") + bytes(4), "out of order|cannot be read"),
        (lambda header: (5).to_bytes(4, "big") + header.correlation_id.to_bytes(4, "big") + b"\xff",
         "cannot be read"),
    ],
)  # fmt: skip
async def test_everybody_who_waits_is_told_when_the_order_is_lost(answer, why):
    def reply(header):
        return versions(header) if header.api_key == 18 else answer(header)

    async with Peer(reply) as port:
        connection = await Connection.open("127.0.0.1", port)
        results = await asyncio.gather(
            *(connection.send(MetadataRequest(topics=[])) for _ in range(3)),
            return_exceptions=True,
        )
        assert all(isinstance(each, ConnectionLost) for each in results)
        with pytest.raises(ConnectionLost, match=why):
            raise results[0]
        with pytest.raises(ConnectionLost):
            await connection.send(MetadataRequest(topics=[]))


def only_the_first(header):
    """An answer to the first request after the versions, and none to those after it."""
    if header.api_key == 18:
        return versions(header)
    answer = b"".join(frame_response(header.correlation_id, MetadataResponse(), 12))
    return answer if header.correlation_id == 2 else b""


async def test_each_post_is_given_up_when_its_own_time_is_over():
    said = []
    async with Peer(only_the_first) as port:
        connection = await Connection.open("127.0.0.1", port)
        ended = asyncio.get_running_loop().create_future()
        connection.post(MetadataRequest(topics=[]), 12, said.append, timeout_seconds=0.03)
        connection.post(MetadataRequest(topics=[]), 12, said.append, timeout_seconds=30)
        await asyncio.sleep(0.06)
        assert [type(each) for each in said] == [MetadataResponse], "the other has time left"
        connection.post(MetadataRequest(topics=[]), 12, ended.set_result, timeout_seconds=0.03)
        why = str(await asyncio.wait_for(ended, 5))
        assert why == f"127.0.0.1:{port} did not answer Metadata within 0.03 s"
    assert [type(each) for each in said] == [MetadataResponse, ConnectionLost]


async def test_a_post_is_given_up_also_when_the_one_before_it_was_answered():
    async with Peer(only_the_first) as port:
        connection = await Connection.open("127.0.0.1", port)
        ended = asyncio.get_running_loop().create_future()
        connection.post(MetadataRequest(topics=[]), 12, [].append, timeout_seconds=0.03)
        connection.post(MetadataRequest(topics=[]), 12, ended.set_result, timeout_seconds=0.06)
        assert "within 0.06 s" in str(await asyncio.wait_for(ended, 5))


async def test_what_may_help_is_tried_again_until_the_deadline_and_nothing_else():
    cluster = Cluster("127.0.0.1:1", deadline_seconds=1.0)
    tries = 0

    async def attempt(code):
        nonlocal tries
        tries += 1
        raise ApiError(code)

    with pytest.raises(ApiError):
        await cluster.retrying(lambda: attempt(ErrorCode.LEADER_NOT_AVAILABLE))
    assert tries > 2
    tries = 0
    with pytest.raises(ApiError):
        await cluster.retrying(lambda: attempt(ErrorCode.TOPIC_ALREADY_EXISTS))
    assert tries == 1


def test_addresses_are_read_or_refused_with_the_part_that_is_wrong():
    assert parse_addresses("a:1, [::1]:9092") == [("a", 1), ("::1", 9092)]
    for text in ("", "a", "a:x", "a:0", "a:70000", "a:1,b"):
        with pytest.raises(ClientFault):
            parse_addresses(text)


def test_check_is_silent_for_zero_and_knows_unknown_codes():
    check(0)
    with pytest.raises(ApiError) as found:
        check(9999)
    assert found.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


class Renewing:
    """What a broker of Kafka's does on one connection: a session of 100 ms, during whose renewal
    nothing else may come."""

    def __init__(self):
        self.keys = []

    def reply(self, header):
        keys = [
            ApiVersion(api_key=key, min_version=0, max_version=newest)
            for key, newest in ((3, 12), (17, 1), (18, 4), (36, 2))
        ]
        answer = {
            3: MetadataResponse(), 17: SaslHandshakeResponse(mechanisms=["PLAIN"]),
            18: ApiVersionsResponse(api_keys=keys),
            36: SaslAuthenticateResponse(session_lifetime_ms=100),
        }[header.api_key]  # fmt: skip
        if self.keys and self.keys[-1] == 17 and header.api_key != 36:
            return None
        self.keys.append(header.api_key)
        return b"".join(frame_response(header.correlation_id, answer, header.version))


async def told(answer):
    """An answer, or that there is none."""
    (found,) = await asyncio.gather(answer, return_exceptions=True)
    return found


async def test_requests_wait_while_a_login_is_renewed():
    peer, posted = Renewing(), []
    async with Peer(peer.reply) as port:
        connection = await Connection.open("127.0.0.1", port, login=Login("PLAIN", "a", "b"))
        sent = 0
        while peer.keys.count(17) < 6:
            assert connection.is_open
            if connection._held is not None:
                connection.post(MetadataRequest(), 9, posted.append)
                sent += 1
            await asyncio.sleep(0)
        assert isinstance((await told(connection.send(MetadataRequest()))), MetadataResponse)
        assert len(posted) == sent > 0
        assert {type(each) for each in posted} == {MetadataResponse}
        await connection.close()


async def test_those_who_wait_for_a_renewal_are_told_when_it_fails():
    peer, posted = Renewing(), []

    def reply(header):
        return None if peer.keys.count(17) == 2 else peer.reply(header)

    async with Peer(reply) as port:
        connection = await Connection.open("127.0.0.1", port, login=Login("PLAIN", "a", "b"))
        while connection.is_open:
            if connection._held is not None:
                connection.post(MetadataRequest(), 9, posted.append)
            await asyncio.sleep(0)
        assert posted and {type(each) for each in posted} == {ConnectionLost}


def test_keys_go_where_java_producers_send_them():
    for size in range(64):
        key = os.urandom(size)
        assert murmur2(key) == java_murmur2(key)
        assert partition_for(key, 7) == (java_murmur2(key) & 0x7FFFFFFF) % 7
