"""The two programs that mirror between two clusters: MirrorMaker 2 and `anabranch mirror run`.

What: the properties file that both are given, and the command line of each. Rule kept: both get the
same file and two cores; MirrorMaker 2 runs as its own start script runs it, with a heap of 2 GB.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache"
CLASSES = f"{CACHE / 'mirror-maker'}/*:{CACHE / 'kafka'}/*"
MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
MAKER_FLAGS = ("-Xms256m", "-Xmx2g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
EXACTLY_ONCE = {
    "east.consumer.isolation.level": "read_committed",
    "west.exactly.once.source.support": "enabled",
    "dedicated.mode.enable.internal.rest": "true",
    "listeners": "http://127.0.0.1:0",
}
"""A dedicated MirrorMaker 2 needs its inner REST server for it."""
REPLICATED = ("", "offset.storage.", "config.storage.", "status.storage.", "checkpoints.topic.",
              "heartbeats.topic.", "offset-syncs.topic.")  # fmt: skip
SECONDLY = ("refresh.topics", "refresh.groups", "sync.topic.configs", "emit.checkpoints",
            "sync.group.offsets")  # fmt: skip


def properties(east: str, west: str, topics: str, **more: Mapping[str, object]) -> str:
    """An mm2.properties of the flow east->west between two clusters of one node each.

    `more` are further keys, in dictionaries, of which the names say what they are for.
    """
    keys: dict[str, object] = {
        "clusters": "east, west",
        "east.bootstrap.servers": east,
        "west.bootstrap.servers": west,
        "east->west.enabled": "true",
        "east->west.topics": topics,
        "sync.topic.acls.enabled": "false",
        **{f"{each}replication.factor": 1 for each in REPLICATED},
        **{f"{each}.interval.seconds": 1 for each in SECONDLY},
    }
    for each in more.values():
        keys |= each
    return "".join(f"{key} = {text}\n" for key, text in keys.items())


def maker_command(file: Path, logging: Path) -> list[str]:
    """MirrorMaker 2 in its dedicated mode; `logging` is a configuration of log4j."""
    log4j = f"-Dlog4j2.configurationFile={logging}"
    return ["java", *MAKER_FLAGS, log4j, "-cp", CLASSES, MAKER, str(file)]


def our_command(file: Path, *words: str) -> list[str]:
    """`anabranch mirror run` on two cores."""
    run = ["mirror", "run", str(file), "--master", "local[2]"]
    return [sys.executable, "-m", "anabranch", *run, *words]
