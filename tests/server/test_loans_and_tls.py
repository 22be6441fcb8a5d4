"""Parts of files never go past a transport that encrypts: they would leave in plain text."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from server_kit import Client
from test_loan_sender import answers, ask, file, lender, received  # noqa: F401 - fixtures

from anabranch.server import link
from anabranch.server.tls_transport import Handshakes, TlsTransport

SECRET_SIZE = 3 << 20


@pytest.fixture
def lent(request):
    """Who lends, and the file."""
    return request.getfixturevalue("lender"), request.getfixturevalue("file")


@pytest.fixture
def contexts(tmp_path):
    """For a server with a certificate of its own, and for a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "server.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=str(pem))


async def test_what_is_lent_goes_through_a_transport_that_encrypts(
    serve, contexts, monkeypatch, lent
):
    """The client decrypts all of it, and nothing was written to the socket beside TLS."""

    def never(*_what):
        raise AssertionError("a part of a file went past TLS")

    monkeypatch.setattr(link, "LoanSender", never)
    parts = [b"a" * 30_000, (0, SECRET_SIZE), b"b" * 100, (77, SECRET_SIZE)]
    service = await serve(answers(*lent, parts))
    server_context, client_context = contexts
    monkeypatch.setattr(service.acceptor, "context", lambda: server_context)

    def encrypted():
        return TlsTransport(service.acceptor, Handshakes(), service.acceptor._protocol())

    server = await asyncio.get_running_loop().create_server(encrypted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=client_context, limit=1 << 24
    )
    client = Client(reader, writer)
    for number in range(3):
        ask(client, number)
    for number in range(3):
        await received(client, number, lent[1], parts)
    (connection,) = service.acceptor.connections
    assert not connection.link.lends
    writer.close()
    server.close()


async def test_a_plain_socket_lends(serve, lent):
    service = await serve(answers(*lent, [(0, SECRET_SIZE)]))
    client = await service.connect()
    ask(client, 0)
    await received(client, 0, lent[1], [(0, SECRET_SIZE)])
    (connection,) = service.acceptor.connections
    assert connection.link.lends


async def test_what_has_no_socket_of_its_own_does_not_lend(lent):
    """Such as a pipe: what is lent is read, and goes through the transport."""

    class Pipe:
        def __init__(self):
            self.written = b""

        def get_extra_info(self, _name, default=None):
            return default

        def get_write_buffer_size(self):
            return 0

        def writelines(self, pieces):
            self.written += b"".join(pieces)

    (lends, segment), pipe = lent, Pipe()
    loan = lends.lend(segment.fileno(), 50, 10)
    link.Link(pipe, lambda: None, lambda _fault: None).send([b"a", loan, b"b"], len(loan) + 2)
    assert pipe.written == b"a" + bytes(loan.read()) + b"b"
