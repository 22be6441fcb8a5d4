"""Clients of either end of a flow, from the keys that its properties file has for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.client.cluster import Cluster, parse_addresses
from anabranch.client.security import security_of
from anabranch.core.errors import ClientFault
from anabranch.core.mirror.config import BOOTSTRAP, BadConfig, Config

CLIENT_ID = "anabranch-mirror"
DEADLINE_SECONDS = 30.0


def cluster_of(client: Mapping[str, str], role: str) -> Cluster:
    """A client, not yet connected. Raises BadConfig for addresses and security that cannot be."""
    try:
        return Cluster(
            client[BOOTSTRAP], client_id=f"{client.get('client.id', CLIENT_ID)}|{role}",
            security=security_of(client), deadline_seconds=DEADLINE_SECONDS,
        )  # fmt: skip
    except ClientFault as fault:
        raise BadConfig([fault.message]) from None


def client_faults(config: Config) -> Iterator[str]:
    """What is wrong with addresses and security of clusters, each with its key."""
    for alias, client in config.clusters.items():
        try:
            parse_addresses(client[BOOTSTRAP])
        except ClientFault as fault:
            yield f"{alias}.{BOOTSTRAP}: {fault.message}"
        try:
            security_of(client, f"{alias}.").context()
        except ClientFault as fault:
            yield fault.message
