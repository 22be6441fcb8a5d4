"""Metrics over TLS with tokens: who reads what, what is read again, and what is refused at the start."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request

import pytest
from tests.server.node_kit import ThreadNode, settings_of

from anabranch.core.settings.setting import ConfigFault
from anabranch.server import http as http_pages
from anabranch.server.config import ConfigError, load_config
from anabranch.server.http_guard import HttpGuard
from anabranch.server.node import Node
from anabranch.testing.certificates import Authority

TOKEN, OTHER = "0123456789abcdef-prometheus", "fedcba9876543210-other"
SECONDS = 20
GUARDED = ("/metrics", "/placement", "/placement/x", "/diskless/lags", "/nowhere")
OPEN = ("/healthz", "/readyz")


class Watched(ThreadNode):
    """A node whose pages need a token, over TLS."""

    def __init__(self, folder, **more):
        self.authority = Authority(folder / "tls")
        self.store = folder / "node.pem"
        self.renew()
        self.tokens = folder / "tokens"
        self.tokens.write_text(f"# prometheus\n{TOKEN}\n")
        given = [
            *settings_of(folder / "data"), "http.listener=127.0.0.1:0",
            "http.security.protocol=SSL", f"http.tokens.file={self.tokens}",
            f"ssl.keystore.location={self.store}",
            f"ssl.truststore.location={self.authority.certificate}",
            *(f"{name}={value}" for name, value in more.items()),
        ]  # fmt: skip
        self._take(load_config(None, given))

    def renew(self):
        """Another certificate."""
        with open(self.authority.issue("node").both, "rb") as file:
            self.store.write_bytes(file.read())

    def get(self, path, token=TOKEN, client=None):
        """Status and body of a page."""
        context = ssl.create_default_context(cafile=self.authority.certificate)
        if client is not None:
            context.load_cert_chain(client.chain, client.key)
        request = urllib.request.Request(f"https://{self.node.http_address}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=SECONDS, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    running = Watched(tmp_path_factory.mktemp("watched")).start()
    yield running
    running.stop()


def test_a_token_opens_every_page(node):
    assert "anabranch_" in node.get("/metrics")[1]
    assert node.get("/placement")[0] == 200


@pytest.mark.parametrize("token", ["", "wrong", OTHER, TOKEN[:-1]])
@pytest.mark.parametrize("path", GUARDED)
def test_no_page_but_health_is_open_to_others(node, path, token):
    code, body = node.get(path, token)
    assert code == (404 if path == "/nowhere" else 401)
    assert "anabranch_" not in body and (not token or token not in body)


@pytest.mark.parametrize("path", OPEN)
def test_health_is_open_to_anyone(node, path):
    assert node.get(path, "") == (200, '{"ok":true}')


def test_a_client_without_tls_gets_nothing(node):
    host, _, port = node.node.http_address.partition(":")
    with socket.create_connection((host, int(port))) as plain:
        plain.sendall(f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        plain.settimeout(SECONDS)
        assert b"HTTP/1" not in plain.recv(100)


def test_new_tokens_and_keys_are_taken_from_their_files(node):
    node.tokens.write_text(f"{OTHER}\n")
    assert node.get("/metrics", OTHER)[0] == 200 and node.get("/metrics")[0] == 401
    node.tokens.write_text("short\n")
    assert node.get("/metrics", OTHER)[0] == 200, "the tokens of before stay"
    node.tokens.write_text(f"{TOKEN}\n")
    assert node.get("/metrics")[0] == 200
    before = served(node)
    node.renew()
    until = time.monotonic() + SECONDS
    while served(node) == before:
        assert time.monotonic() < until
    assert node.get("/metrics")[0] == 200


def served(node):
    host, _, port = node.node.http_address.partition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=SECONDS)


def test_handshakes_do_not_hold_up_the_loop(node, monkeypatch):
    """Of the node, in which its clients are served."""
    on_loop, shake = [], ssl.SSLObject.do_handshake

    def noted(tls):
        if tls.server_side:
            on_loop.append(threading.get_ident() == node._thread.ident)
        return shake(tls)

    monkeypatch.setattr(ssl.SSLObject, "do_handshake", noted)
    assert node.get("/metrics")[0] == 200
    assert on_loop and not any(on_loop)


def test_connections_count_before_their_handshake(node, monkeypatch):
    """Those that say nothing would take all descriptors of the node."""
    monkeypatch.setattr(http_pages, "MOST_CONNECTIONS", 4)
    host, _, port = node.node.http_address.partition(":")
    silent = [socket.create_connection((host, int(port)), SECONDS) for _ in range(4)]
    held = node.node._http._server.server_state.connections
    until = time.monotonic() + SECONDS
    while len(held) < 4:
        assert time.monotonic() < until
        time.sleep(0.01)
    another = socket.create_connection((host, int(port)), SECONDS)
    with another, contextlib.suppress(ConnectionResetError):
        assert another.recv(1) == b""
    for each in silent:
        each.close()
    while held:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_certificate_may_stand_for_a_token(tmp_path):
    more = {"http.tokens.file": "", "listener.name.http.ssl.client.auth": "required"}
    running = Watched(tmp_path, **more).start()
    try:
        client = running.authority.issue("prometheus")
        assert running.get("/metrics", "", client)[0] == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            running.get("/metrics", "")
    finally:
        running.stop()


def refusal(*settings):
    with pytest.raises(ConfigError) as fault:
        load_config(None, ["node.id=1", *settings])
    return str(fault.value)


def test_pages_beyond_loopback_are_encrypted_and_for_those_who_show_who_they_are(tmp_path):
    own = Authority(tmp_path).issue("node")
    tls = ["http.security.protocol=SSL", f"ssl.keystore.location={own.both}"]
    at = "http.listener=0.0.0.0:9644"
    assert "beyond.loopback" in refusal(at, "http.tokens.file=/x")
    assert "http.tokens.file" in refusal(at, *tls)
    assert "needs a key" in refusal(at, "http.security.protocol=SSL")
    assert "http.security.protocol" in refusal(at, "http.security.protocol=SASL_SSL")
    assert load_config(None, ["node.id=1", at, *tls, "http.tokens.file=/x"]).http_port == 9644
    allow = "listener.unauthenticated.beyond.loopback.allow=true"
    assert load_config(None, ["node.id=1", at, *tls, allow]).http_port == 9644


@pytest.mark.parametrize(("text", "why"), [(None, "No such file"), ("short", "line 1 is no token")])
def test_a_file_of_tokens_that_cannot_be_used_stops_the_start(tmp_path, text, why):
    path = tmp_path / "tokens"
    if text is not None:
        path.write_text(text)
    config = load_config(
        None, ["node.id=1", "http.listener=127.0.0.1:0", f"http.tokens.file={path}"]
    )
    with pytest.raises(ConfigFault, match=f"^http.tokens.file: {path}: .*{why}.* (write|remove) "):
        HttpGuard(config.http_settings, str(path))


async def begun(config):
    await Node(config).start()


def test_files_that_cannot_be_used_are_told_before_anything_is_begun(tmp_path):
    missing, data = tmp_path / "missing", tmp_path / "data"
    for given in (
        [f"http.tokens.file={missing}"],
        ["http.security.protocol=SSL", f"ssl.keystore.location={missing}"],
    ):
        config = load_config(None, [*settings_of(data), "http.listener=127.0.0.1:0", *given])
        with pytest.raises(ConfigFault, match=f"{missing}"):
            asyncio.run(begun(config))
        assert not data.exists()
