"""Clients of either end of a flow, from the keys that its properties file has for them."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.client.cluster import Cluster
from anabranch.core.mirror.config import BadConfig

CLIENT_ID = "anabranch-mirror"
DEADLINE_SECONDS = 30.0


def cluster_of(client: Mapping[str, str], role: str) -> Cluster:
    """A client, not yet connected. Raises BadConfig for a protocol that cannot be spoken."""
    protocol = client.get("security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise BadConfig([f"security.protocol = {protocol} is not supported: use PLAINTEXT."])
    client_id = client.get("client.id", CLIENT_ID)
    return Cluster(
        client["bootstrap.servers"], client_id=f"{client_id}|{role}",
        deadline_seconds=DEADLINE_SECONDS,
    )  # fmt: skip
