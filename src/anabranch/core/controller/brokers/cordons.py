"""Cordoned brokers: nothing new is placed on them, and what is there stays (KIP-1066).

What: a broker whose own dynamic setting `cordoned.log.dirs` is `*`. Rules kept: every choice of a
broker leaves cordoned ones out (placers, filling, observers, plans), and a list by hand is refused
where it would bring a replica to one; replicas that it has stay, lead and count as before, and a
move that is taken back may return to it. Why by the setting alone, and not by the broker's word as
in Kafka: a broker that is down can be cordoned too, which is when one wants to. Single folders
cannot be cordoned: the controller knows folders by id and not by path.

Source: KIP-1066. Not here: the setting's check (`core/settings`), moving what is there (plans).
"""

from __future__ import annotations

from anabranch.core.metadata.image import RESOURCE_BROKER, MetadataImage
from anabranch.core.sentences import named

CORDON = "cordoned.log.dirs"
EVERY_FOLDER = "*"


def is_cordoned(image: MetadataImage, broker_id: int) -> bool:
    """Whether a broker gets nothing new."""
    return image.config(RESOURCE_BROKER, str(broker_id)).get(CORDON, "").strip() == EVERY_FOLDER


def cordoned(image: MetadataImage) -> frozenset[int]:
    """The registered brokers that get nothing new."""
    return frozenset(each for each in image.brokers if is_cordoned(image, each))


def said_of(image: MetadataImage) -> str:
    """A sentence for a refusal, naming the remedy; empty where nobody is cordoned."""
    broker_ids = sorted(cordoned(image))
    if not broker_ids:
        return ""
    names = named(broker_ids, "broker")
    return f" No new replicas go to {names}: cordoned ({CORDON}={EVERY_FOLDER})."
