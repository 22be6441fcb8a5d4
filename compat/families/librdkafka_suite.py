"""librdkafka's own test cases about administration and rights, at listeners that ask who one is.

The cases take their client's settings from `test.conf` and call `kafka-acls.sh` of a Kafka folder.
Theirs is a script that has Kafka's tool run with the same login, in the JVM of the other tools: a
case with a JVM for each call would be over its own time limit. A case passes only if it says so
itself: one that fails, skips itself or was not run fails the row. The parts that each case left
out, and how many passed, are compared too; with certificates, case 0081 leaves out the rights that
the description of a group tells, as it knows names of users only from SASL.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer
from threading import Thread
from typing import Any

from compat.clients.librdkafka_tests import LIBRARIES, PROGRAM, fetch_librdkafka_tests
from compat.families.acls import AUTHORIZER
from compat.families.cluster import ACLS
from compat.families.secure import WAYS, SecurePeer, secured
from compat.peer import Peer
from compat.row import Failed, row

CASES = ("0081_admin", "0109_auto_create_topics", "0115_producer_auth", "0119_consumer_auth")
SECONDS = 900.0
"""They take two to four minutes, and twice as long where other work has both cores."""
BROKER_VERSION = "4.1.0"
"""Cases ask for what a broker of this version can do."""
SETTINGS = {
    **AUTHORIZER, "auto.create.topics.enable": "true", "super.users": "User:ANONYMOUS",
}  # fmt: skip
"""Everybody may do what no rule forbids; ANONYMOUS are the node itself and the rows' tools."""
CLIENT = {"broker.address.family": "v4", "test.timeout.multiplier": "2"}
"""As librdkafka's own runner has it."""
COLOUR = re.compile(r"\x1b\[[\d;]*m")
PART_PASSED = re.compile(r"^\[(\w+) *\/.*?\] \[ .*: PASS\b")
LEFT_OUT = re.compile(r"^\[(\w+) *\/.*?\] (?:\[ (\w+):.*: SKIP: (.*) \]|(Skipping .*))")
ASK = """
import json, socket, sys
with socket.create_connection(("127.0.0.1", {port})) as link:
    link.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    code, words = json.loads(link.makefile().readline())
print(words, file=sys.stderr)
sys.exit(code)
"""
"""What `kafka-acls.sh` does here: it has its arguments run, and ends with the tool's code."""


@row("secure-librdkafka-suite", prepare=fetch_librdkafka_tests)
def passes_librdkafkas_tests(peer: Peer) -> object:
    """librdkafka's own tests 0081 (quick), 0109, 0115 and 0119 pass with each mechanism over TLS
    and with certificates; a check by which the last three leave out what needs ACLs on secured
    listeners is switched off."""
    settings = {name.replace(".", "_"): text for name, text in SETTINGS.items()}
    with secured(peer, **settings) as here:
        seen = {way: cases(here, way) for way in WAYS}
    unmet = [
        f"{way}: {name} {case['state']} {case['why']}".strip()
        for way, found in seen.items()
        for name, case in found.items()
        if case["state"] != "PASSED"
    ]
    if unmet:
        raise Failed("; ".join(unmet))
    return seen


def cases(here: SecurePeer, way: str) -> dict[str, dict[str, Any]]:
    """What became of each case with one way to show who one is."""
    folder = here.scratch / f"suite-{way.lower()}"
    folder.mkdir()
    settings = {**here.librdkafka(way), **CLIENT}
    conf = "".join(f"{name}={value}\n" for name, value in settings.items())
    (folder / "test.conf").write_text(conf)
    environment = {
        **os.environ, "TESTS": ",".join(name[:4] for name in CASES), "KAFKA_PATH": str(folder),
        "TEST_KAFKA_VERSION": BROKER_VERSION, "TEST_CONSUMER_GROUP_PROTOCOL": "classic",
        "TEST_REPORT": "report.json", "LD_LIBRARY_PATH": ":".join(map(str, LIBRARIES)),
    }  # fmt: skip
    environment.pop("CI", None)  # some cases are others where it is set
    with acl_tool(here, way, folder):
        ran = here.command(
            PROGRAM, "-p1", "-Q", env=environment, cwd=folder, seconds=SECONDS, fails=None, raw=True
        )
    report = folder / "report.json"
    if not report.exists():
        raise Failed(f"{way}: test-runner ended with {ran.code}: {ran.complaint}")
    return outcomes(report.read_text(), ran.err)


@contextmanager
def acl_tool(here: SecurePeer, way: str, folder: Path) -> Iterator[None]:
    """While the block runs, `bin/kafka-acls.sh` of the folder is Kafka's tool with a login."""
    properties = here.properties(way)

    class Asked(StreamRequestHandler):
        """One call of the script."""

        def handle(self) -> None:
            """Run the tool with the script's arguments."""
            words = (*json.loads(self.rfile.readline()), "--command-config", properties)
            try:
                output = here.tool(ACLS, *words, fails=None, raw=True)
                told = (output.code, output.out + output.err)
            except Failed as failure:
                told = (1, str(failure))
            self.wfile.write(json.dumps(told).encode() + b"\n")

    with TCPServer(("127.0.0.1", 0), Asked) as server:
        (folder / "ask.py").write_text(ASK.format(port=server.server_address[1]))
        script = folder / "bin" / "kafka-acls.sh"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{folder}/ask.py" "$@"\n')
        script.chmod(0o755)
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def outcomes(report: str, printed: str) -> dict[str, dict[str, Any]]:
    """State of each case, why it has not passed, parts that passed, and those left out."""
    tests = json.loads(report)["tests"]
    lines = COLOUR.sub("", printed).splitlines()
    found: dict[str, dict[str, Any]] = {}
    for name in CASES:
        passed = [line for line in lines if (part := PART_PASSED.match(line)) and part[1] == name]
        left_out = [part for line in lines if (part := LEFT_OUT.match(line)) and part[1] == name]
        found[name] = {
            "state": tests.get(name, {}).get("state", "not run"),
            "why": _why(lines, name),
            "passed": len(passed),
            "left out": [" ".join(filter(None, part.groups()[1:])) for part in left_out],
        }
    return found


def _why(lines: list[str], name: str) -> str:
    """What a case that failed says."""
    begins = f'### Test "{name}'
    place = next((place for place, line in enumerate(lines) if line.startswith(begins)), None)
    return "" if place is None else " ".join(lines[place : place + 2])
