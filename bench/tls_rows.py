"""Rows over TLS: the rows of one broker on a listener SSL, and a storm of handshakes.

Both servers have the same key of an elliptic curve, and take TLS 1.3 of a client that checks no
certificate: what is measured is the server. They have a plaintext listener beside it, on which the
storm's neighbour produces.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lean
import workloads
from flood import TOPIC, produce_ms
from row import MB, Row, more, own_less
from scale import scaled
from servers import SERVERS, WORK, Server, free_port
from workloads import Sample

from anabranch.testing.certificates import Authority

STORM_SECONDS = 10
STORM = Path(__file__).with_name("handshake_storm.py")


def over_tls(kind: type[Server]) -> type[Server]:
    """A server that has a listener SSL, too, of which its clients are."""

    class Encrypted(kind):  # type: ignore[misc,valid-type]
        """See over_tls."""

        client: Mapping[str, Any] = {
            "security.protocol": "ssl", "enable.ssl.certificate.verification": False,
        }  # fmt: skip

        def __init__(
            self,
            settings: Mapping[str, object] | None = None,
            work: Path = WORK,
            ports: tuple[int, int] | None = None,
        ) -> None:
            port, controller_port = ports or (free_port(), free_port())
            self.tls_port = free_port()
            clients = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{self.tls_port}"
            encrypted = {
                "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller_port}",
                "advertised.listeners": clients,
                "listener.security.protocol.map": (
                    "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
                ),
                "inter.broker.listener.name": "PLAINTEXT",
                "ssl.keystore.location": Authority(work / "tls").issue("node").both,
                "ssl.keystore.type": "PEM",
            }
            super().__init__({**encrypted, **(settings or {})}, work, (port, controller_port))

        @property
        def bootstrap(self) -> str:
            """Its listener SSL."""
            return f"127.0.0.1:{self.tls_port}"

    return Encrypted


TLS_SERVERS = {name: over_tls(kind) for name, kind in SERVERS.items()}
CONSUMED_BYTES = 600 * MB
CONSUMED_TOPIC = "consumed"


def _fill(server: Server) -> None:
    workloads.create(server, [CONSUMED_TOPIC])
    size = {"value_bytes": 1000, "batch_bytes": 1_000_000}
    workloads.send(server, CONSUMED_TOPIC, total_bytes=scaled(CONSUMED_BYTES), **size)


def handshakes(server: Any) -> Sample:
    """Handshakes a second of clients that do nothing else, and what another client waits."""
    workloads.create_first(server, TOPIC)
    workloads.acknowledge_one(server, TOPIC)
    with lean.dial(server.port) as line:
        quiet_ms = sorted(produce_ms(line) for _ in range(100))
        words = [sys.executable, str(STORM), str(server.tls_port), str(scaled(STORM_SECONDS))]
        before = server.cpu_seconds()
        storm = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        ended = threading.Thread(target=storm.wait)
        ended.start()
        waited_ms = []
        while ended.is_alive():
            waited_ms.append(produce_ms(line))
    done, _, seconds = storm.communicate()[0].partition(" ")
    waited_ms.sort()
    cpu = server.cpu_seconds() - before
    return Sample(
        {
            "handshakes/s": int(done) / float(seconds),
            "CPU ms a handshake": cpu / max(1, int(done)) * 1000,
            "p99 ms of others": waited_ms[len(waited_ms) * 99 // 100],
            "p50 ms": waited_ms[len(waited_ms) // 2],
            "p50 ms quiet": quiet_ms[len(quiet_ms) // 2],
        }
    )


TLS_ROWS = [
    Row(
        "tls-produce",
        "TLS: produce 1 KB, 1 MB batches, acks=1, one partition, 600 MB",
        lambda server: workloads.produce(
            server, value_bytes=1000, total_bytes=scaled(600 * MB), batch_bytes=1_000_000
        ),
        {"MB/s": more(1)},
        servers=TLS_SERVERS,
    ),
    Row(
        "tls-consume",
        "TLS: consume 1 KB from page cache, one partition, 600 MB",
        lambda server: workloads.consume(
            server, CONSUMED_TOPIC, value_bytes=1000, total_bytes=scaled(CONSUMED_BYTES)
        ),
        {"MB/s": more(1)},
        servers=TLS_SERVERS,
        prepare=_fill,
    ),
    Row(
        "tls-handshakes",
        "32 clients that do nothing but TLS handshakes, one after the other",
        handshakes,
        {"handshakes/s": more(1), "p99 ms of others": own_less(50)},
        servers=TLS_SERVERS,
        note="The clients are a process on the same machine.",
    ),
]
