"""SASL_SSL in a run of `chaos --secure`: what each client of it needs to come in.

What: `share` writes the user, the password and the authority of a cluster into a file, whose name
the processes of clients have in their environment; the other functions read it, in the words of
each client library. Without it they give nothing, and a run is in plain text. Rule kept: user and
password are new for each run. Not here: certificates and users (`anabranch.testing.security`).
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from pathlib import Path
from typing import Any

from anabranch.client.connection import Connection
from anabranch.client.security import PLAINTEXT, Security, security_of
from anabranch.core.errors import ApiError
from anabranch.testing.security import ClusterSecurity

PROTOCOL = "SASL_SSL"
PLACE = "ANABRANCH_CHAOS_SECURITY"
ANSWER_SECONDS = 3.0
"""Until a node has answered, a handshake and a login included."""


def share(security: ClusterSecurity, folder: Path) -> None:
    """Let this process and those that it starts come into the cluster."""
    found = {"properties": security.properties, "librdkafka": security.librdkafka_properties}
    path = folder / "clients.json"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(found, file)
    os.environ[PLACE] = str(path)


def _given(part: str) -> dict[str, str]:
    path = os.environ.get(PLACE)
    found: dict[str, str] = json.loads(Path(path).read_text())[part] if path else {}
    return found


def librdkafka() -> dict[str, str]:
    """Settings of librdkafka."""
    return _given("librdkafka")


def kafka_python() -> dict[str, Any]:
    """Arguments of kafka-python."""
    given = _given("librdkafka")
    if not given:
        return {}
    return {**_login(given), "ssl_cafile": given["ssl.ca.location"]}


def aiokafka() -> dict[str, Any]:
    """Arguments of aiokafka."""
    given = _given("librdkafka")
    if not given:
        return {}
    context = ssl.create_default_context(cafile=given["ssl.ca.location"])
    return {**_login(given), "ssl_context": context}


def _login(given: dict[str, str]) -> dict[str, str]:
    return {
        "security_protocol": PROTOCOL,
        "sasl_mechanism": given["sasl.mechanism"],
        "sasl_plain_username": given["sasl.username"],
        "sasl_plain_password": given["sasl.password"],
    }


def java() -> list[str]:
    """Settings of Kafka's Java clients, as words `name=value`."""
    return [f"{name}={value}" for name, value in _given("properties").items()]


def own() -> Security:
    """Of Anabranch's own client."""
    given = _given("properties")
    return security_of(given) if given else PLAINTEXT


def answers(host: str, port: int) -> bool:
    """Whether a node serves clients there who log in."""
    security = own()

    async def ask() -> None:
        connection = await Connection.open(
            host, port, ssl=security.context(), login=security.login,
            timeout_seconds=ANSWER_SECONDS,
        )  # fmt: skip
        await connection.close()

    try:
        asyncio.run(ask())
    except (OSError, ApiError):
        return False
    return True
