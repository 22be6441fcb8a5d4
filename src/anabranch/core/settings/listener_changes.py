"""Changed keys, trust and logins of listeners: what can be told of them without files.

What: which of the changed settings a running node would go over to, for listeners that it has; a
misspelt name would be stored, and the keys or users that were to go would stay. Rule kept: only
what changes is looked at, so that what is stored already can be put right bit by bit. Apache Kafka
4.1 takes any name of a listener, and its controller any value. Not here: what its node says to keys
and logins (`server/changed_settings.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from anabranch.core.access.jaas import JaasFault, parse_jaas
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.listeners import listener_names
from anabranch.core.settings.validation import JAAS, LISTENER_PREFIX, base_name, is_reloaded

REFUSED = "Validation of dynamic config update failed"
"""Kafka's words for what a broker cannot go over to."""


def changed(before: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[str]:
    """Names of settings that are set, are others than before, and are gone over to."""
    for name in sorted(wanted):
        if wanted[name] != before.get(name) and is_reloaded(name):
            yield name


def changed_listeners(before: Mapping[str, str], wanted: Mapping[str, str]) -> set[str]:
    """Of which listeners such a setting is another than before, or is gone; in small letters, as
    names of settings have them."""
    return {
        listener(name)
        for name in {*before, *wanted}
        if before.get(name) != wanted.get(name) and is_reloaded(name)
    }


def unknown_listeners(wanted: Mapping[str, str], known: Collection[str]) -> list[str]:
    """Names of settings whose listener is not among the known ones."""
    known = {each.lower() for each in known}
    return [name for name in sorted(wanted) if is_reloaded(name) and listener(name) not in known]


def listener(name: str) -> str:
    """Whose setting it is."""
    return name[len(LISTENER_PREFIX) :].partition(".")[0]


def refuse_change(
    before: Mapping[str, str], wanted: Mapping[str, str], known: Collection[str]
) -> None:
    """Raise ClientFault for a listener that the node does not have, or a login that cannot be
    read."""
    texts = {name: wanted[name] for name in changed(before, wanted)}
    for name in unknown_listeners(texts, known):
        has = ", ".join(sorted(known)) or "none"
        raise _refusal(
            f"{name}: the node has no listener {listener(name)}; it has {has}. Correct the name, "
            "in small letters; a new listener comes with a restart, from the node's file."
        )
    for name, text in texts.items():
        if base_name(name) == JAAS:
            try:
                parse_jaas(text)
            except JaasFault as fault:
                raise _refusal(f"{name}: {fault}") from None


def told_listeners(image: MetadataImage, config: BrokerConfig, node_id: int) -> set[str]:
    """Those that a node is known to have, and those of controllers, which all nodes speak to: as
    they are registered, and as another node's `config` names them."""
    nodes = [image.brokers.get(node_id), *image.controllers.values()]
    told = {name for node in nodes if node is not None for name in node.endpoints}
    return told.union(listener_names(config.controller_listener_names))


def nothing_to_refuse(_config: BrokerConfig) -> None:
    """Where listeners have no settings of their own."""


def _refusal(why: str) -> ClientFault:
    return ClientFault(ErrorCode.INVALID_REQUEST, f"{REFUSED}: {why}")
