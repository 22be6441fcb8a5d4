"""A Google Cloud Storage server on loopback for tests: fake-gcs-server, and what it lacks in front.

What: fake-gcs-server, built once by Go's module client, keeps objects in memory. It serves the XML
API's reads, lists and deletions, but of its puts only signed ones, without preconditions. `Gateway`
passes every request on and sends a put as an upload of the JSON API with the same precondition
(`x-goog-if-generation-match`, there `ifGenerationMatch`), which the server checks. Requests for the
bucket LOCKED are refused as the service refuses those without rights; the server knows no rights.
Source: the references of both APIs. Not here: what is tested (`real_gcs.py`).
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import Request, urlopen

from bench.servers import free_port

from compat.clients import CACHE

BUCKET, LOCKED = "bucket", "locked"
START_SECONDS = 30.0
ANSWER_SECONDS = 60.0
CONDITION = "x-goog-if-generation-match"
HOP = frozenset({"connection", "host", "transfer-encoding", "content-length", "date", "server"})
"""Headers of one connection, which are not passed on."""
BOUNDARY = "one-object"
REFUSAL = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>AccessDenied</Code>"
    b"<Message>Access denied.</Message></Error>"
)
NO_BUCKET = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>NoSuchBucket</Code>"
    b"<Message>The specified bucket does not exist.</Message></Error>"
)


class _Passing(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Pass it on."""
        if not self._is_refused():
            self._answer(*self._ask(self.command, self.path, b"", dict(self.headers.items())))

    def do_HEAD(self) -> None:
        """Pass it on."""
        self.do_GET()

    def do_DELETE(self) -> None:
        """Pass it on."""
        self.do_GET()

    def do_PUT(self) -> None:
        """Send a put as an upload of the JSON API."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self._is_refused():
            return
        bucket, _, key = urlsplit(self.path).path[1:].partition("/")
        query = {"uploadType": "multipart", "name": unquote(key)}
        if CONDITION in self.headers:
            query["ifGenerationMatch"] = self.headers[CONDITION]
        kind = self.headers["Content-Type"]
        about = json.dumps({"name": unquote(key), "contentType": kind}).encode()
        head = (
            b"--%b\r\nContent-Type: application/json\r\n\r\n%b\r\n--%b\r\nContent-Type: %b\r\n\r\n"
        )
        mark = BOUNDARY.encode()
        status, _headers, said = self._ask(
            "POST",
            f"/upload/storage/v1/b/{quote(unquote(bucket), safe='')}/o?{urlencode(query)}",
            head % (mark, about, mark, kind.encode()) + body + b"\r\n--%b--\r\n" % mark,
            {"Content-Type": f"multipart/related; boundary={BOUNDARY}"},
        )
        if status == 404:
            self._answer(404, [("Content-Type", "application/xml")], NO_BUCKET)
        elif status != 200:
            self._answer(status, [], b"")
        else:
            told = json.loads(said)
            found = [("ETag", told["etag"]), ("x-goog-generation", str(told["generation"]))]
            self._answer(200, found, b"")

    def _is_refused(self) -> bool:
        is_locked = self.path[1:].partition("?")[0].partition("/")[0] == LOCKED
        if is_locked:
            self._answer(403, [("Content-Type", "application/xml")], REFUSAL)
        return is_locked

    def _ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        headers = {name: value for name, value in headers.items() if name.lower() not in HOP}
        connection = http.client.HTTPConnection(self.server.target, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        return answer.status, answer.getheaders(), said

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() not in HOP:
                self.send_header(name, value)
            elif name.lower() == "content-length" and self.command == "HEAD":
                length = value
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    target: str


class Gateway:
    """One server on loopback with one bucket."""

    def __init__(self) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        self._server = _Server(("127.0.0.1", 0), _Passing)
        self._server.target = self._address
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and make its bucket."""
        host, _, port = self._address.partition(":")
        program = CACHE / "fake-gcs-server" / "fake-gcs-server"
        words = ["-scheme", "http", "-backend", "memory", "-host", host, "-port", port]
        self._process = subprocess.Popen(
            [program, *words, "-public-host", self._address, "-log-level", "error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(OSError):
                socket.create_connection((host, int(port)), 1.0).close()
                break
            time.sleep(0.05)
        else:
            raise SystemExit("fake-gcs-server did not start")
        request = Request(
            f"http://{self._address}/storage/v1/b?project=tests",
            json.dumps({"name": BUCKET}).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=START_SECONDS):
            pass
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """End it; what it held is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._server.shutdown()
        self._server.server_close()
