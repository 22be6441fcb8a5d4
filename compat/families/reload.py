"""Keys of a listener and passwords of users that change while clients are connected.

Kafka reads a key store again when kafka-configs.sh sets its path, be it the path of before; a node
of Anabranch also does so by itself. The node is that of `secure.py`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.security import security_of
from anabranch.core.errors import ClientFault
from anabranch.core.wire.messages.describe_cluster import DescribeClusterRequest
from compat.families.configs import CONFIGS
from compat.families.secure import SCRAM, WAYS, SecurePeer, added, secured, user
from compat.peer import Peer
from compat.row import row

BROKER = ("--alter", "--entity-type", "brokers", "--entity-name", 1)
STORE = "listener.name.mtls.ssl.keystore"
OTHER = "another-secret"


class Clients:
    """Connections that stay open, one for each way to show who one is, and an event loop."""

    def __init__(self, here: SecurePeer, runner: asyncio.Runner) -> None:
        self.here, self.runner = here, runner
        self.open = {way: self.connect(way) for way in WAYS}

    def connect(self, way: str, **password: str) -> Connection:
        """A connection that has logged in. Raises ClientFault with the code of a refusal."""
        lines = self.here.properties(way, **password).read_text().splitlines()
        security = security_of(dict(each.split("=", 1) for each in lines))
        host, port = self.here.address(way).split(":")
        return self.runner.run(
            Connection.open(host, int(port), ssl=security.context(), login=security.login)
        )

    def go_on(self) -> list[str]:
        """The ways whose first connection still answers."""
        return [way for way, each in self.open.items() if self.answers(each)]

    def answers(self, connection: Connection) -> bool:
        """Whether a request is answered."""
        try:
            return bool(self.runner.run(connection.send(DescribeClusterRequest())).brokers)
        except ConnectionLost:
            return False

    def enters(self, way: str, **password: str) -> str:
        """What a new client is told: that it is in, or the code with which it is refused."""
        try:
            connection = self.connect(way, **password)
        except (ClientFault, ConnectionLost) as refused:
            return getattr(refused, "code", type(refused)).name
        answers = self.answers(connection)
        self.runner.run(connection.close())
        return "answered" if answers else "hangs up"

    def close(self) -> None:
        """All of them."""
        for each in self.open.values():
            self.runner.run(each.close())


@contextmanager
def connected(peer: Peer) -> Iterator[tuple[SecurePeer, Clients]]:
    """A node with clients that have logged in."""
    with secured(peer) as here, asyncio.Runner() as runner:
        clients = Clients(here, runner)
        yield here, clients
        clients.close()


def shown_at(here: SecurePeer, listener: str) -> str:
    """The certificate that a listener shows to whoever asks."""
    host, port = here.addresses[listener].split(":")
    return ssl.get_server_certificate((host, int(port)))


def first_of(store: Path) -> str:
    """The first certificate in a PEM file, as `shown_at` gives it."""
    found = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n",
                      store.read_text(), re.DOTALL)  # fmt: skip
    assert found is not None
    return found[0]


def alter(here: SecurePeer, store: Path) -> str:
    """kafka-configs.sh sets the path: the exception of a refusal, nothing when it is taken."""
    words = ("--add-config", f"{STORE}.location={store},{STORE}.type=PEM")
    output = here.tool(CONFIGS, *here.at, *BROKER, *words, fails=None, raw=True)
    found = re.search(r"\w+Exception(?=:)", output.complaint) if output.code else None
    return found[0] if found else ""


def broken(here: SecurePeer, good: Path) -> dict[str, Path]:
    """Key stores that cannot be used. Not here: the key of another certificate, which Kafka takes,
    so that no client can connect any more."""
    text = good.read_text()
    key = text[: text.index("-----BEGIN CERTIFICATE-----")]
    contents = {
        "no PEM": "no key", "empty": "", "no certificate": key, "no key": text.removeprefix(key),
        "cut off": text[: len(text) // 3],
    }  # fmt: skip
    files = {
        name: here.file(f"bad-{n}.pem", each) for n, (name, each) in enumerate(contents.items())
    }
    return {**files, "no file": here.scratch / "none.pem", "a folder": here.scratch}


@row("secure-reload")
def reloads_keys(peer: Peer) -> object:
    """A listener's key store is replaced under its path and by another path: clients go on, new
    ones see the new certificate, and what cannot be used is refused."""
    seen: dict[str, Any] = {}
    with connected(peer) as (here, clients):
        own = Path(here.authority.issue("node").both)
        alter(here, own)
        here.wait(lambda: shown_at(here, "MTLS") == first_of(own), "the key of the same path")
        seen["same path"] = [clients.go_on(), clients.enters("certificate")]
        other = here.file("other.pem", Path(here.authority.issue("node").both).read_text())
        alter(here, other)
        here.wait(lambda: shown_at(here, "MTLS") == first_of(other), "the key of another path")
        seen["another path"] = [clients.go_on(), clients.enters("certificate")]
        for name, store in broken(here, other).items():
            fault = alter(here, store)
            kept = shown_at(here, "MTLS") == first_of(other)
            seen[name] = [fault, kept, clients.go_on(), clients.enters("certificate")]
        was = first_of(other)
        other.write_text("no key")
        seen["broken under its path"] = alter(here, other)
        seen["after it"] = [
            shown_at(here, "MTLS") == was, clients.go_on(), clients.enters("certificate"),
        ]  # fmt: skip
        other.write_text(own.read_text())
        alter(here, other)
        here.wait(lambda: shown_at(here, "MTLS") == first_of(other), "the mended key")
        described = here.tool(
            CONFIGS, *here.at, "--describe", *BROKER[1:], raw=True
        ).out.replace(str(here.scratch), "")  # fmt: skip
        seen["described"] = sorted(re.findall(rf"{STORE}[^,}}\s]+", described))
    return seen


@row("secure-reload-password")
def changes_passwords(peer: Peer) -> object:
    """A SCRAM password is changed and removed while its client is connected: the client goes on,
    and new ones need the new password."""
    seen: dict[str, Any] = {}
    with connected(peer) as (here, clients):

        def told() -> dict[str, Any]:
            return {
                "go on": clients.go_on(),
                **{way: [clients.enters(way), clients.enters(way, password=OTHER)]
                   for way in SCRAM},
            }  # fmt: skip

        seen["before"] = told()
        here.tool(CONFIGS, *here.at, *user("alice"), *added(SCRAM[0], OTHER))
        here.wait(lambda: clients.enters(SCRAM[0], password=OTHER) == "answered", "the password")
        seen["one changed"] = told()
        here.tool(CONFIGS, *here.at, *user("alice"), "--delete-config", SCRAM[1])
        here.wait(lambda: clients.enters(SCRAM[1]) != "answered", "no password")
        seen["one removed"] = told()
    return seen
