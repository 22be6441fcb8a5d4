"""Settings that an operator alters during other faults, and takes back when their time is over.

What: one context manager, as in `faults`. Settings of topics and defaults of all brokers are set to
other values, or spelled in another way than usual. Rule kept: each value is one that the judge's
rules permit at any time (segments no smaller than a batch may be, tombstones and records kept
longer, the same minimum), so that a change which is never taken back, since nobody answered, leads
to no verdict. Smaller limits than what is written are left to the simulator. Not here: which topics
there are (`topics`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from anabranch.client.admin import ConfigOperation, ResourceKind, alter_configs
from chaos.asking import ask
from chaos.plan import Fault
from chaos.scene import Scene
from chaos.stores import Nothing
from chaos.topics import AGE_MS, DISKLESS, KEPT_BYTES, SMALL_BYTES, TOMBSTONE_MS, TOPICS

ALL_BROKERS = ""
STAYS = ("min.insync.replicas",)
"""Defaults of all brokers that cannot be taken back while eligible leader replicas are kept."""


class Alteration(NamedTuple):
    """A setting of a topic, or of all brokers, and what it is set to."""

    topic: str
    name: str
    value: str
    operation: ConfigOperation = ConfigOperation.SET


ALTERATIONS = (
    Alteration("plain", "internal.segment.bytes", str(SMALL_BYTES)),
    Alteration("wide", "internal.segment.bytes", f" {SMALL_BYTES}"),
    Alteration("rolling", "internal.segment.bytes", str(SMALL_BYTES)),
    Alteration("plain", "segment.ms", "400"),
    Alteration("wide", "segment.ms", " 1500"),
    Alteration("compacted", "segment.ms", "800"),
    Alteration("compacted", "min.compaction.lag.ms", "4000"),
    Alteration("compacted", "delete.retention.ms", str(2 * TOMBSTONE_MS)),
    Alteration("compacted", "cleanup.policy", " compact "),
    Alteration("plain", "cleanup.policy", "delete", ConfigOperation.APPEND),
    Alteration("plain", "retention.ms", "-1"),
    Alteration("aging", "retention.ms", str(2 * AGE_MS)),
    Alteration("bounded", "retention.bytes", f"{2 * KEPT_BYTES} "),
    Alteration("wide", "min.insync.replicas", " 2"),
    Alteration("rolling", "unclean.leader.election.enable", " FALSE"),
    Alteration(DISKLESS, "diskless.enable", "TRUE"),
    Alteration(DISKLESS, "diskless.enable", " tRue"),
    Alteration(ALL_BROKERS, "log.roll.ms", "2000"),
    Alteration(ALL_BROKERS, "log.cleaner.min.compaction.lag.ms", "3000"),
    Alteration(ALL_BROKERS, "unclean.leader.election.enable", "False"),
    Alteration(ALL_BROKERS, "min.insync.replicas", "2 "),
)


@contextlib.contextmanager
def alter(scene: Scene, fault: Fault) -> Iterator[str]:
    """Alter a setting; at the end it is what it was."""
    wanted = ALTERATIONS[int(fault.aim * len(ALTERATIONS)) % len(ALTERATIONS)]
    _change(scene, wanted)
    whose = wanted.topic or "all brokers"
    yield f"set {wanted.name} of {whose} to {wanted.value!r}"
    back = taken_back(wanted)
    if back is not None:
        with contextlib.suppress(Nothing):
            _change(scene, back)


def taken_back(altered: Alteration) -> Alteration | None:
    """The change after which a setting is what a run begins with; None where it stays."""
    topic, name = altered.topic, altered.name
    if topic == ALL_BROKERS and name in STAYS:
        return None
    own = TOPICS[topic].configs.get(name) if topic else None
    if own is None:
        return Alteration(topic, name, "", ConfigOperation.DELETE)
    return Alteration(topic, name, own)


def _change(scene: Scene, wanted: Alteration) -> None:
    kind = ResourceKind.TOPIC if wanted.topic else ResourceKind.BROKER
    deletes = wanted.operation is ConfigOperation.DELETE
    operation = (wanted.operation, wanted.name, None if deletes else wanted.value)
    ask(scene, lambda cluster: alter_configs(cluster, kind, wanted.topic, [operation]))
