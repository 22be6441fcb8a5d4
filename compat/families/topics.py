"""`kafka-topics.sh`: topics created, described, widened, deleted; and what is refused."""

from __future__ import annotations

from compat.peer import Output, Peer
from compat.row import row

TOPICS = "org.apache.kafka.tools.TopicCommand"


def topics(peer: Peer, *words: object, **options: object) -> Output:
    """kafka-topics.sh with these words."""
    return peer.tool(TOPICS, *peer.at, *words, **options)


def create(peer: Peer, topic: str, partitions: int = 1, **config: object) -> None:
    """A topic; `config` has underscores for dots."""
    words: list[object] = []
    for name, value in config.items():
        words += ["--config", f"{name.replace('_', '.')}={value}"]
    topics(peer, "--create", "--topic", topic, "--partitions", partitions, *words)


@row("topics-create")
def creates(peer: Peer) -> object:
    """A topic with partitions and configurations is created, described and listed."""
    made = topics(
        peer, "--create", "--topic", "made", "--partitions", 3, "--config", "retention.ms=86400000"
    )
    described = topics(peer, "--describe", "--topic", "made")
    listed = topics(peer, "--list")
    return made.lines, described.lines, "made" in listed.lines


@row("topics-create-existing")
def refuses_an_existing_topic(peer: Peer) -> object:
    """A topic that exists is refused, and with --if-not-exists passed over."""
    create(peer, "twice")
    again = topics(peer, "--create", "--topic", "twice", fails=True)
    peer.say(again.out)
    topics(peer, "--create", "--topic", "twice", "--if-not-exists")
    return again.code
