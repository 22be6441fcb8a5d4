"""An identity provider for rows and tests: its keys, its tokens, and an address that answers."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from joserfc import jwk, jws

ALGORITHMS = {
    "RS256": "RSA", "PS384": "RSA", "RS512": "RSA", "ES256": "P-256", "ES384": "P-384",
    "ES512": "P-521", "EdDSA": "Ed25519",
}  # fmt: skip


def new_key(kind, name):
    """A key of a kind, with a name."""
    more = {"kid": name} if name else {}
    if kind == "RSA":
        return jwk.RSAKey.generate_key(2048, more)
    if kind.startswith("P-"):
        return jwk.ECKey.generate_key(kind, more)
    return jwk.OKPKey.generate_key(kind, more)


def claims_of(user="alice", seconds=300, **more):
    """What a token says that is good for so long."""
    now = int(time.time())
    return {"sub": user, "iat": now, "exp": now + seconds, **more}


def signed(key, algorithm, claims, **header):
    """A token."""
    if key.kid and "kid" not in header:
        header["kid"] = key.kid
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_payload_length = 1 << 24
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    header = {each: text for each, text in header.items() if text is not None}
    return jws.serialize_compact({"alg": algorithm, **header}, payload, key, registry=registry)


def unsecured(claims, header=None):
    """A token without a signature."""
    parts = (header or {"alg": "none"}, claims)
    texts = (base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts)
    return b".".join(texts).decode() + "."


def first_message(token, identity="", more=""):
    """What a client of OAUTHBEARER says first."""
    gs2 = f"n,a={identity}," if identity else "n,,"
    return f"{gs2}\x01auth=Bearer {token}\x01{more}\x01".encode()


class Provider:
    """An identity provider with one key set; `jwks` and `token` answer over HTTP, or over https
    with a context."""

    def __init__(self, context=None, secret="provider-secret"):
        self.key = new_key("RSA", "one")
        self.keys = [self.key]
        self.secret = secret
        self.asked, self.seconds, self.user, self.status, self.more = [], 300, "alice", 200, {}
        provider = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self):
                self.say(provider.jwks)

            def do_POST(self):
                size = int(self.headers["Content-Length"])
                form = dict(urllib.parse.parse_qsl(self.rfile.read(size).decode()))
                provider.asked.append((self.headers["Authorization"], form))
                said = base64.b64decode(self.headers["Authorization"].split()[1]).decode()
                if said.partition(":")[2] != provider.secret:
                    self.say({"error": "invalid_client"}, 401)
                    return
                answer = {"access_token": provider.token(), "expires_in": provider.seconds}
                self.say({**answer, "token_type": "Bearer"})

            def say(self, body, status=None):
                text = json.dumps(body).encode()
                self.send_response(status or provider.status)
                self.send_header("Content-Length", str(len(text)))
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_said):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def jwks(self):
        """The public keys."""
        return {"keys": [each.as_dict(private=False) for each in self.keys]}

    def token(self, **more):
        """A token of the user."""
        return signed(self.key, "RS256", claims_of(self.user, self.seconds, **self.more, **more))

    def stop(self):
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def provider(**more):
    """A provider that answers until the end of a test."""
    running = Provider(**more)
    try:
        yield running
    finally:
        running.stop()
