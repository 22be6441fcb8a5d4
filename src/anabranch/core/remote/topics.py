"""Which topics have a remote log, and what that asks of a node and of a change of settings.

Rules kept: a log of such a topic keeps its start, whatever a node's own settings say, so that a
node that was started without a remote store deletes nothing; but it serves nothing of what lies
there, so it does not start; a controller says what it cannot do. What lies there is deleted only if
its owner says so. Source: KIP-405, KIP-950 and the texts of Kafka 4.1. Not here: contradictions of
settings (`core/settings`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import RESOURCE_TOPIC, MetadataImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.setting import is_true

REMOTE = "remote.storage.enable"
DELETES = "remote.log.delete.on.disable"
SYSTEM = "remote.log.storage.system.enable"
STORES = "remote.storage.url and diskless.coordinator.url"
MOST_NAMED = 3


def makes_remote(own: Mapping[str, str]) -> bool:
    """Whether a topic that has these settings of its own has a remote log."""
    return is_true(own.get(REMOTE))


def why_not_served(image: MetadataImage, broker: BrokerConfig) -> str:
    """Why a broker with these settings must not serve the topics that there are; "" when it may."""
    names = _unserved(image, broker)
    if not names:
        return ""
    return (
        f"{_lacking(names)} on this node, which could not read their older records; set "
        f"{SYSTEM}=true, {STORES} as on the other nodes, or, while those run, set {REMOTE}=false "
        f"with {DELETES}=true for these topics"
    )


def why_not_controlled(image: MetadataImage, broker: BrokerConfig) -> str:
    """What a controller with these settings cannot do for the topics that there are; "" when it
    can. It goes on, as in Kafka: without controllers nothing does."""
    names = _unserved(image, broker)
    if not names:
        return ""
    return (
        f"{_lacking(names)} on this controller, which refuses changes of their settings, and does "
        f"not have their remote segments removed when they are deleted; set {SYSTEM}=true, "
        f"{STORES} as on the brokers, and restart it"
    )


def _unserved(image: MetadataImage, broker: BrokerConfig) -> list[str]:
    if broker.remote_log_storage_system_enable:
        return []
    return sorted(
        name
        for (kind, name), own in image.configs.items()
        if kind == RESOURCE_TOPIC and makes_remote(own)
    )


def _lacking(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"{REMOTE} is true for topic {', '.join(names[:MOST_NAMED])}{more}, and {SYSTEM} is false"
    )


def refuse_disabling(before: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Raise ClientFault for a change that would take a topic's remote log away and not say that its
    records may be deleted."""
    if makes_remote(before) and not makes_remote(values) and not is_true(values.get(DELETES)):
        raise ClientFault(
            ErrorCode.INVALID_CONFIG,
            "It is invalid to disable remote storage without deleting remote data. If you want to "
            "keep the remote data and turn to read only, please set "
            f"`{REMOTE}=true,remote.log.copy.disable=true`. If you want to disable remote storage "
            f"and delete all remote data, please set `{REMOTE}=false,{DELETES}=true`.",
        )
