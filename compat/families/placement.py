"""Where replicas go: Kafka's placer from its jar, its tool that moves them, missing replicas."""

from __future__ import annotations

import json
import re
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from compat import striped_clusters
from compat.families.cluster import REASSIGN
from compat.families.configs import CONFIGS
from compat.families.topics import refused, topics
from compat.java import java
from compat.peer import Peer
from compat.row import Failed, row
from compat.three import LONG_SECONDS, Three, three

HERE = Path(__file__).resolve().parents[1]
PLACER_SECONDS = 300.0
SETTING = "enable.under.replicated.topic.creation"
RECORDS, RECORD_BYTES = 6_000, 1_000
"""More than a follower gets in one answer, so that a throttle can hold a move back."""
FAST, SLOW = 50_000_000, 1_000
"""Bytes a second."""


@row("placement-striped")
def places_in_stripes(peer: Peer) -> object:
    """StripedReplicaPlacer of Kafka's jar and our `striped` give the same lists, and refuse with
    the same words, for the same source of chance over 4,000 random clusters."""
    questions = list(striped_clusters.questions())
    if peer.name == "anabranch":
        return striped_clusters.summary([striped_clusters.ours(each) for each in questions])
    text = "".join(json.dumps(each) + "\n" for each in questions)
    command = java(peer.scratch, HERE / "Placements.java")
    output = peer.command(*command, text=text, seconds=PLACER_SECONDS, raw=True)
    return striped_clusters.summary([json.loads(line) for line in output.out.splitlines()])


def move(peer: Peer, *words: object, fails: bool = False) -> list[str]:
    """kafka-reassign-partitions; its lines."""
    output = peer.tool(REASSIGN, *peer.at, *words, fails=fails)
    if fails:
        peer.say(output.complaint)
    return output.lines


def moves_file(peer: Peer, name: str, *wanted: tuple[str, int, list[int]]) -> Path:
    """A file of moves."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": replicas}
        for topic, index, replicas in wanted
    ]
    return peer.file(f"{name}.json", json.dumps({"version": 1, "partitions": partitions}))


def settled(peer: Peer, file: Path) -> list[str]:
    """What --verify says when nothing moves any more, and the broker that it asks knows it too."""
    words = ("--reassignment-json-file", file, "--verify")

    def ended() -> list[str]:
        """Its lines, none while the controller, or a broker that is behind it, tells of moves."""
        if "No partition reassignments found." not in move(peer, "--list"):
            return []
        lines = move(peer, *words)
        return [] if any(" rather than " in line for line in lines) else lines

    return peer.wait(ended, "moved", LONG_SECONDS)


def filled(cluster: Three, topic: str, assignment: str) -> None:
    """A topic at these brokers, with some megabytes in its first partition."""
    topics(cluster, "--create", "--topic", topic, "--replica-assignment", assignment)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for _ in range(RECORDS):
        producer.produce(topic, bytes(RECORD_BYTES), partition=0)
    if producer.flush(LONG_SECONDS):
        raise Failed("records were not acknowledged")


def throttles(cluster: Three, topic: str) -> list[str]:
    """The throttle's settings of the topic and the brokers, as kafka-configs shows them."""
    seen = []
    for entity in (("--topic", topic), *(("--broker", number) for number in (1, 2, 3))):
        lines = cluster.tool(CONFIGS, *cluster.at, "--describe", *entity).lines
        seen += sorted(line.partition(" sensitive")[0] for line in lines if "throttled" in line)
    return seen


@row("reassign-three")
def moves_replicas(peer: Peer) -> object:
    """On three brokers, moves are proposed, begun with a throttle and verified; then it goes."""
    with three(peer) as cluster:
        filled(cluster, "moved", "1:2,2:3")
        wish = cluster.file("topics.json", '{"version": 1, "topics": [{"topic": "moved"}]}')
        words = ("--topics-to-move-json-file", wish, "--broker-list", "1,2,3", "--generate")
        made = move(cluster, *words)
        proposed = sorted(
            (each["topic"], each["partition"], len(set(each["replicas"])))
            for each in json.loads(made[-1])["partitions"]
        )
        file = moves_file(cluster, "moves", ("moved", 0, [3, 2]), ("moved", 1, [3, 1, 2]))
        words = ("--reassignment-json-file", file, "--execute", "--throttle", FAST)
        begun = move(cluster, *words)
        limits = throttles(cluster, "moved")
        seen = settled(cluster, file)
        left = throttles(cluster, "moved")
        return made[:-1], proposed, begun, limits, seen, places(cluster, "moved"), left


def places(cluster: Three, topic: str) -> list[list[str]]:
    """Leader, replicas, and who is in sync in order of ids, of each partition."""
    lines = topics(cluster, "--describe", "--topic", topic).lines
    found = re.findall(r"Leader: (\d+) Replicas: (\S+) Isr: (\S+)", "\n".join(lines))
    return [[leader, replicas, *sorted(isr.split(","))] for leader, replicas, isr in found]


@row("reassign-three-cancel")
def takes_moves_back(peer: Peer) -> object:
    """A throttled move is listed, holds off another, and is taken back; bad moves are refused."""
    with three(peer) as cluster:
        filled(cluster, "stuck", "1:2")
        file = moves_file(cluster, "moves", ("stuck", 0, [1, 3]))
        words = ("--reassignment-json-file", file)
        begun = move(cluster, *words, "--execute", "--throttle", SLOW)
        listed = move(cluster, "--list")
        under_way = move(cluster, *words, "--verify")
        again = move(cluster, *words, "--execute", fails=True)
        back = move(cluster, *words, "--cancel")
        after = move(cluster, "--list")
        shown = places(cluster, "stuck")
        bad = {
            "a broker that is not there": ("stuck", 0, [1, 9]),
            "a topic that is not there": ("nobody", 0, [1, 3]),
            "a partition that is not there": ("stuck", 7, [1, 3]),
            "a broker twice": ("stuck", 0, [1, 1]),
            "no broker": ("stuck", 0, []),
        }
        why = {}
        for what, wanted in bad.items():
            file = moves_file(cluster, "bad", wanted)
            why[what] = move(cluster, "--reassignment-json-file", file, "--execute", fails=True)
        return begun, listed, under_way, len(again), back, after, shown, sorted(why)


@row("missing-replicas")
def shows_missing_replicas(peer: Peer) -> object:
    """While one of three brokers never came, three replicas are refused alike; with KIP-409's
    setting on, which Kafka does not have, its Java admin client sees the third as an empty node."""
    with three(peer, (1, 2)) as cluster:
        cluster.wait(lambda: brokers(cluster) == 2, "two brokers", LONG_SECONDS)
        why = refused(cluster, "--create", "--topic", "asked", "--replication-factor", 3)
        if peer.name == "anabranch":
            with_setting_on(cluster)
        return why


def brokers(cluster: Three) -> int:
    """Brokers that clients are told of."""
    try:
        servers = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        return len(AdminClient(servers).list_topics(timeout=5).brokers)
    except KafkaException:
        return 0


def with_setting_on(cluster: Three) -> None:
    """What Kafka's tools and its Java admin client see of missing replicas, and that they go."""
    words = ("--entity-type", "brokers", "--entity-default", "--alter")
    cluster.tool(CONFIGS, *cluster.at, *words, "--add-config", f"{SETTING}=true")
    program = HERE / "clients" / "MissingReplicas.java"
    said = cluster.command(*java(cluster.scratch, program, cluster.bootstrap, "short")).lines
    row = "3 replicas, 2 in sync, last -1 empty true, led by a broker true"
    if said != ["created with factor 3", f"0: {row}", f"1: {row}"]:
        raise Failed(f"the Java admin client saw {said}")
    listed = topics(cluster, "--describe", "--under-replicated-partitions").lines
    if len(listed) != 2:
        raise Failed(f"not listed as under-replicated: {listed}")
    cluster.start((3,))
    cluster.wait(
        lambda: not topics(cluster, "--describe", "--under-replicated-partitions").lines,
        "the third broker has its replicas",
        LONG_SECONDS,
    )
