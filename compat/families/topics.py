"""`kafka-topics.sh`: topics created, described, widened, deleted; and what is refused."""

from __future__ import annotations

from typing import Any

from compat.peer import Output, Peer
from compat.row import Failed, row

TOPICS = "org.apache.kafka.tools.TopicCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"


def topics(peer: Peer, *words: object, **options: Any) -> Output:
    """kafka-topics.sh with these words."""
    return peer.tool(TOPICS, *peer.at, *words, **options)


def create(peer: Peer, topic: str, partitions: int = 1, **config: object) -> None:
    """A topic that can be written to; `config` has underscores for dots.

    Kafka tells a new topic's leaders a moment before they lead. A producer that writes at once may
    have its first batch refused and its second one taken, since nothing is known of it yet; the
    first is out of order from then on, and sent again for two minutes. So each leader is asked.
    """
    words: list[object] = []
    for name, value in config.items():
        words += ["--config", f"{name.replace('_', '.')}={value}"]
    topics(peer, "--create", "--topic", topic, "--partitions", partitions, *words)
    peer.wait(lambda: led(peer, topic) == partitions, f"all leaders of {topic} answer")


def led(peer: Peer, topic: str) -> int:
    """Of how many partitions of a topic the leader answers."""
    try:
        return len(peer.tool(OFFSETS, *peer.at, "--topic", topic).lines)
    except Failed:  # no broker knows the topic yet
        return 0


def refused(peer: Peer, *words: object) -> str:
    """What kafka-topics.sh says when it refuses: the exception's name; the sentence is noted."""
    output = topics(peer, *words, fails=True)
    sentence, names = output.out + output.err, []
    for line in output.lines + output.err.splitlines():
        names += [
            word.rstrip(":").rpartition(".")[2] for word in line.split() if "Exception" in word
        ]
    peer.say(sentence.partition("\n")[0])
    return names[0] if names else ""


@row("topics-create")
def creates(peer: Peer) -> object:
    """A topic with partitions and configurations is created, described and listed."""
    config = ("--config", "retention.ms=86400000", "--config", "cleanup.policy=compact,delete")
    made = topics(peer, "--create", "--topic", "made", "--partitions", 3, *config)
    described = topics(peer, "--describe", "--topic", "made")
    return made.lines, described.lines, "made" in topics(peer, "--list").lines


@row("topics-create-existing")
def refuses_an_existing_topic(peer: Peer) -> object:
    """A topic that exists is refused, and ignored with --if-not-exists."""
    create(peer, "twice")
    why = refused(peer, "--create", "--topic", "twice")
    return why, topics(peer, "--create", "--topic", "twice", "--if-not-exists").lines


@row("topics-create-default-partitions")
def creates_with_the_brokers_defaults(peer: Peer) -> object:
    """Without --partitions and --replication-factor the broker's defaults apply."""
    topics(peer, "--create", "--topic", "defaults")
    return topics(peer, "--describe", "--topic", "defaults").lines


@row("topics-create-assigned")
def creates_with_an_assignment(peer: Peer) -> object:
    """A topic is created where --replica-assignment says."""
    topics(peer, "--create", "--topic", "assigned", "--replica-assignment", "1,1,1")
    return topics(peer, "--describe", "--topic", "assigned").lines


BAD_TOPICS = {
    "a name with a blank": ("--topic", "a name"),
    "a name of 250 characters": ("--topic", "n" * 250),
    "the name ..": ("--topic", ".."),
    "more replicas than brokers": ("--topic", "bad", "--replication-factor", 2),
    "a broker that is not there": ("--topic", "bad", "--replica-assignment", "7"),
    "a value that is no number": ("--topic", "bad", "--config", "retention.ms=soon"),
    "a value that is no policy": ("--topic", "bad", "--config", "cleanup.policy=keep"),
    "a value below its limit": ("--topic", "bad", "--config", "segment.bytes=1"),
    "an unknown configuration": ("--topic", "bad", "--config", "no.such.setting=1"),
    "no partitions": ("--topic", "bad", "--partitions", 0),
}


@row("topics-create-refused")
def refuses_bad_topics(peer: Peer) -> object:
    """Bad names, counts, assignments and configurations are refused with the same error."""
    why = {what: refused(peer, "--create", *words) for what, words in BAD_TOPICS.items()}
    return why, "bad" in topics(peer, "--list").lines


@row("topics-create-colliding")
def refuses_names_that_collide(peer: Peer) -> object:
    """A name that differs from another only in . and _ is refused."""
    create(peer, "collides.here")
    return refused(peer, "--create", "--topic", "collides_here")


@row("topics-list")
def lists(peer: Peer) -> object:
    """Topics are listed by pattern, and without the internal ones."""
    for name in ("listed-b", "listed-a", "unlisted"):
        create(peer, name)
    listed = topics(peer, "--list", "--topic", "listed-.*").lines
    return listed, topics(peer, "--list", "--exclude-internal", "--topic", "unlisted").lines


@row("topics-describe")
def describes(peer: Peer) -> object:
    """Topics are described by pattern and by id, with overrides only, and filtered by problems."""
    create(peer, "described-a", 2)
    create(peer, "described-b", retention_bytes=1000000)
    raw = topics(peer, "--describe", "--topic", "described-a", raw=True)
    topic_id = raw.out.partition("TopicId: ")[2].split()[0]
    kinds = ("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions")
    return {
        "pattern": topics(peer, "--describe", "--topic", "described-.*").lines,
        "id": topics(peer, "--describe", "--topic-id", topic_id).lines,
        "overrides": topics(
            peer, "--describe", "--topics-with-overrides", "--topic", "described-.*"
        ).lines,
        "at-min-isr": topics(
            peer, "--describe", "--at-min-isr-partitions", "--topic", "described-.*"
        ).lines,
        **{kind: topics(peer, "--describe", f"--{kind}").lines for kind in kinds},
    }


@row("topics-describe-unknown")
def describes_no_unknown_topic(peer: Peer) -> object:
    """A topic that does not exist is refused, and ignored with --if-exists."""
    why = refused(peer, "--describe", "--topic", "nobody")
    passed = topics(peer, "--describe", "--topic", "nobody", "--if-exists").lines
    return why, passed, refused(peer, "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ")


@row("topics-alter-partitions")
def adds_partitions(peer: Peer) -> object:
    """A topic gets more partitions; fewer, as many, and those of an unknown topic are refused."""
    create(peer, "widened", 2)
    topics(peer, "--alter", "--topic", "widened", "--partitions", 5)
    return {
        "described": topics(peer, "--describe", "--topic", "widened").lines,
        "fewer": refused(peer, "--alter", "--topic", "widened", "--partitions", 3),
        "as many": refused(peer, "--alter", "--topic", "widened", "--partitions", 5),
        "nobody": refused(peer, "--alter", "--topic", "nobody", "--partitions", 5),
        "if exists": topics(
            peer, "--alter", "--topic", "nobody", "--partitions", 5, "--if-exists"
        ).lines,
    }


@row("topics-delete")
def deletes(peer: Peer) -> object:
    """Topics are deleted by pattern, and can be created again; an unknown one is refused."""
    for name in ("deleted-a", "deleted-b"):
        create(peer, name, 2)
    topics(peer, "--delete", "--topic", "deleted-.*")
    peer.wait(lambda: not topics(peer, "--list", "--topic", "deleted-.*").lines, "deleted")
    create(peer, "deleted-a")
    why = refused(peer, "--delete", "--topic", "deleted-b")
    passed = topics(peer, "--delete", "--topic", "deleted-b", "--if-exists").lines
    return why, passed, topics(peer, "--describe", "--topic", "deleted-a").lines
