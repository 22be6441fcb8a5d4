"""Placing a million partitions, beside the placer in Kafka's jar; and planning on them.

Nothing is started but, for Kafka, one JVM that runs `compat/Placements.java`: its class
StripedReplicaPlacer, with the heap and flags of a broker, places everything three times, and the
last time counts. Ours runs in this process. Both are given 100 brokers in 10 racks and three
replicas, and no time of reading or writing is counted.
"""

from __future__ import annotations

import json
import subprocess
import time
from random import Random

from scale import scaled
from servers import HEAP, JARS, JVM_FLAGS, ROOT, Server
from workloads import Sample

from anabranch.core.placement.layout import BrokerSite, Layout
from anabranch.core.placement.move_plans import drain
from anabranch.core.placement.placer import Ask, UsableBroker, place
from anabranch.core.placement.placers import PLACERS
from anabranch.core.types import TopicPartition

PARTITIONS = 1_000_000
TOPIC_PARTITIONS = 1_000
FACTOR = 3
BROKERS = 100
RACKS = 10
DRAINED = 1
JVM_ROUNDS = 3
KAFKAS = "striped"
SEED = 7


class InProcess(Server):
    """A side of the comparison that is no server: nothing is started, a folder is there."""

    def start(self) -> None:
        """Nothing is to be started."""

    @property
    def is_alive(self) -> bool:
        """Nothing can end."""
        return True

    def stop(self) -> None:
        """Nothing is to be ended."""


class Ours(InProcess):
    """The product's placers, in this process."""

    name = "anabranch"

    def seconds(self, placer: str) -> float:
        """What a placer takes."""
        begin = time.perf_counter()
        rows = lists(placer)
        seconds = time.perf_counter() - begin
        assert len(rows) == scaled(PARTITIONS)
        return seconds


class KafkasPlacer(InProcess):
    """StripedReplicaPlacer of Kafka's jar, in a JVM."""

    name = "kafka"

    def seconds(self, _placer: str) -> float:
        """What Kafka's only placer takes."""
        question = {
            "seed": SEED,
            "partitions": scaled(PARTITIONS),
            "factor": FACTOR,
            "rounds": JVM_ROUNDS,
            "brokers": [list(broker) for broker in brokers()],
        }
        program = ROOT / "compat" / "Placements.java"
        words = ["java", f"-Xmx{HEAP}", f"-Xms{HEAP}", *JVM_FLAGS, "-cp", f"{JARS}/*", str(program)]
        done = subprocess.run(
            words, input=json.dumps(question) + "\n", capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"StripedReplicaPlacer: {done.stderr.strip()}")
        return float(json.loads(done.stdout)["nanos"][-1] / 1e9)


SIDES: dict[str, type[Server]] = {"anabranch": Ours, "kafka": KafkasPlacer}
OURS_ALONE: dict[str, type[Server]] = {"anabranch": Ours}


def brokers() -> list[UsableBroker]:
    """Brokers in racks, in turn."""
    return [UsableBroker(number, str(number % RACKS), False) for number in range(1, BROKERS + 1)]


def lists(placer: str) -> list[tuple[int, ...]]:
    """What a placer makes."""
    ask = Ask(scaled(PARTITIONS), FACTOR)
    return place(PLACERS[placer], brokers(), ask, Random(SEED)).rows


def placed(server: Server, placer: str) -> Sample:
    """Seconds until the lists are there."""
    assert isinstance(server, (Ours, KafkasPlacer))
    return Sample({"seconds": server.seconds(placer)})


def drained(_server: Server) -> Sample:
    """Seconds to plan the drain of a broker, and moves beside its replicas: 1 is the least."""
    rows = {
        TopicPartition(f"topic-{index // TOPIC_PARTITIONS}", index % TOPIC_PARTITIONS): row
        for index, row in enumerate(lists(KAFKAS))
    }
    held = sum(DRAINED in row for row in rows.values())
    begin = time.perf_counter()
    layout = Layout([BrokerSite(broker.broker_id, broker.rack) for broker in brokers()], rows)
    plan = drain(layout, [DRAINED])
    seconds = time.perf_counter() - begin
    copied = sum(len(set(each.after) - set(each.before)) for each in plan.moves)
    if any(DRAINED in each.after for each in plan.moves) or plan.obstacles:
        raise SystemExit("the plan does not empty the broker")
    return Sample({"seconds": seconds, "moves over the least": copied / max(1, held)})
