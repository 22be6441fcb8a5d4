"""What a broker says to the controller about itself, and what a refusal means for people.

What: the messages of KIP-631 and KIP-858 from what is known of the broker, and the sentences for
their errors. Rule kept: a registration names the folders that work, a heartbeat those that do not;
both are read when the message is made, so that none can be older than its message. Not here: when
something is said (`registration.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.core.errors import ErrorCode, TooOld
from anabranch.core.metadata.features import SUPPORTED_FEATURES
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import check_supported
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from anabranch.core.wire.own_fields import FullDirectories, tagged


@dataclass(frozen=True, slots=True)
class Identity:
    """Who registers. `directories` are the ids of its log folders by path, `endpoints` are
    listener name, host and port, `features` the supported levels (lowest, highest) by name."""

    node_id: int
    cluster_id: str
    incarnation_id: bytes
    directories: Mapping[str, bytes]
    endpoints: Sequence[tuple[str, str, int]]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: SUPPORTED_FEATURES)


class Folders(Protocol):
    """The log folders that do not work, or take no records, by path."""

    offline_folders: set[str]
    full_folders: set[str]


class BrokerView(Protocol):
    """What a registration reads of its broker: the metadata that it acts on, and its folders. A
    folder whose account cannot be read is taken offline."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that the broker acts on."""

    @property
    def partitions(self) -> Folders:
        """Its folders."""


def failed_directories(identity: Identity, standing: BrokerView) -> list[bytes]:
    """The ids of the folders that failed."""
    offline = standing.partitions.offline_folders
    return [known for path, known in identity.directories.items() if path in offline]


def registration_request(
    identity: Identity,
    standing: BrokerView,
    previous_broker_epoch: int,
    history: Mapping[int, bytes] | None,
) -> BrokerRegistrationRequest:
    """Ask for a broker epoch. `history` tells what each folder had seen when this life began."""
    failed = failed_directories(identity, standing)
    return BrokerRegistrationRequest(
        broker_id=identity.node_id,
        cluster_id=identity.cluster_id,
        incarnation_id=identity.incarnation_id,
        listeners=[
            Listener(name=name, host=host, port=port) for name, host, port in identity.endpoints
        ],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in sorted(identity.features.items())
        ],
        rack=identity.rack,
        log_dirs=[each for each in identity.directories.values() if each not in failed],
        previous_broker_epoch=previous_broker_epoch,
        unknown_tagged_fields=None if history is None else dict(history),
    )


def heartbeat_request(
    identity: Identity,
    standing: BrokerView,
    broker_epoch: int,
    *,
    wants_in: bool,
    leaves: bool,
) -> BrokerHeartbeatRequest:
    """Say that the broker lives, how far it acts on the metadata, and what it wants."""
    partitions = standing.partitions
    full = [
        known for path, known in identity.directories.items() if path in partitions.full_folders
    ]
    return BrokerHeartbeatRequest(
        broker_id=identity.node_id,
        broker_epoch=broker_epoch,
        current_metadata_offset=standing.image.offset,
        want_fence=not wants_in,
        want_shut_down=leaves,
        offline_log_dirs=failed_directories(identity, standing),
        unknown_tagged_fields=tagged(FullDirectories(ids=full)),
    )


# Sentences for people


def refusal(identity: Identity, image: MetadataImage, code: ErrorCode) -> str:
    """Why the controller refuses a registration, and what to do."""
    node_id = identity.node_id
    if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
        return (
            f"another live broker has node.id={node_id}; give each node its own id; if one of two "
            "processes runs on a copy of the other's folders, stop it"
        )
    if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
        return (
            f"the controller belongs to another cluster than this node ({identity.cluster_id}); "
            "check controller.quorum.bootstrap.servers and log.dirs"
        )
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return _too_old(node_id, image)
    return f"the controller refuses broker {node_id}: {code.name}"


def _too_old(node_id: int, image: MetadataImage) -> str:
    try:
        check_supported(image)
    except TooOld as fault:
        return str(fault)
    return (
        f"the controller refuses broker {node_id}: the cluster uses a feature at a level "
        "that this version of Anabranch does not support; install a newer version on this node"
    )


def replaced(node_id: int) -> str:
    """Another process has this broker's place."""
    return (
        f"another process registered as broker {node_id}, with a copy of this node's "
        "folders or after this one was silent; run one process for each node.id and folder"
    )


def too_late(node_id: int, limit_ms: int, *, refused: str, unreachable: str) -> str:
    """The first registration took too long: what stood in its way."""
    why = refused
    if unreachable or not refused:
        why = (
            f"{unreachable or 'no controller answered'}; check that a controller runs at one of "
            "controller.quorum.bootstrap.servers"
        )
    return (
        f"broker {node_id} could not register within {limit_ms} ms "
        f"(initial.broker.registration.timeout.ms): {why}"
    )


def untold(limit_ms: int) -> str:
    """A folder failed and no controller heard of it."""
    return (
        f"a log folder failed, and no controller could be informed within {limit_ms} ms "
        "(log.dir.failure.timeout.ms)"
    )
