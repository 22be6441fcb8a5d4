"""The checker's own reading of the metadata log: partitions, brokers and a few settings.

What: what the committed records say, applied by rules written down once more, so that the rules of
production are not checked by themselves. Rule kept: a record is applied as KIP-631 and KIP-966 say
what it means; a record that does not fit is a violation (M5). Not here: what must hold of the
result (`metadata.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from anabranch.core.types import TopicPartition
from anabranch.sim.checks.violation import Violation

NOBODY = -1
Key = tuple[bytes, int]
"""A partition by its topic's id and its index."""

TOPIC, BROKER = 2, 4
"""Kinds of resources that have settings."""
LOST_FOLDER = (1).to_bytes(16)
"""Stands for the folder of a replica that is told as lost."""
_FIRST_FOLDER_ID = 100
"""Smaller ids are no folder's: they say that nobody knows, or that it is lost."""
_LOST = (1).to_bytes(16)
_DISKLESS = "diskless.enable"
MIN_ISR, _UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
_ELR_FEATURE = "eligible.leader.replicas.version"
POLICY, DELETES, COMPACTS = "cleanup.policy", "delete", "compact"
RETENTION_MS, RETENTION_BYTES = "retention.ms", "retention.bytes"
REMOTE_STORAGE, ENDS_REMOTE = "remote.storage.enable", "remote.log.delete.on.disable"
TOMBSTONES_STAY_MS = "delete.retention.ms"
BY_BROKERS = {
    POLICY: "log.cleanup.policy",
    RETENTION_MS: "log.retention.ms",
    RETENTION_BYTES: "log.retention.bytes",
    TOMBSTONES_STAY_MS: "log.cleaner.delete.retention.ms",
}
"""A topic's setting -> the brokers' that is its default, where that has another name."""
_TRUE = re.compile(r"\s*true\s*", re.IGNORECASE)
_LONGER_THAN_A_RUN_MS = 3_600_000
"""Retention of this much and more deletes nothing."""


class Partition(NamedTuple):
    """What the log says of one partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovering: bool
    observers: tuple[int, ...] = ()
    folders: tuple[bytes, ...] = ()
    """Beside `replicas`: the id of the log folder that each lies in, zeros when nobody said."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    """Who comes and who goes while the replicas move."""


class Broker(NamedTuple):
    """What the log says of one broker."""

    epoch: int
    fenced: bool
    leaving: bool
    folders: tuple[bytes, ...] = ()
    full: tuple[bytes, ...] = ()
    """Folders without room."""

    @property
    def active(self) -> bool:
        """Whether it may lead and be in sync."""
        return not self.fenced and not self.leaving


class Changed(NamedTuple):
    """A change of a setting, in the batch that begins at an offset."""

    offset: int
    resource: tuple[int, str]
    name: str
    value: str | None


def means_true(text: str) -> bool:
    """Whether a boolean's text means true, by a rule of the checker's own."""
    return _TRUE.fullmatch(text) is not None


def entries(text: str) -> list[str]:
    """The entries of a list's text."""
    return [each.strip() for each in text.split(",") if each.strip()]


def deletes(policy: str | None, age_ms: str | None, size: str | None) -> bool:
    """Whether such settings drop records with time or for want of room, within a run."""
    by_age = bool(age_ms) and 0 <= int(age_ms or 0) < _LONGER_THAN_A_RUN_MS
    by_size = bool(size) and int(size or 0) >= 0
    by_policy = DELETES in entries(DELETES if policy is None else policy)
    return by_policy and (by_age or by_size)


class Changes:
    """What one committed batch touched, with the state before it (None: there was none)."""

    def __init__(self) -> None:
        self.partitions: dict[Key, Partition | None] = {}
        self.brokers: dict[int, Broker | None] = {}
        self.configs: set[tuple[int, str]] = set()
        self.settings: set[str] = set()
        """Names of settings of topics that had partitions before."""
        self.deleted: list[Key] = []


class Model:
    """Everything that the committed log says so far, up to `end_offset`."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.epoch = 0
        self.static: dict[str, str] = {}
        """What the brokers' own files say where the metadata say nothing."""
        self.partitions: dict[Key, Partition] = {}
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[bytes, str] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.last_settings: dict[bytes, dict[str, str]] = {}
        """Deleted topic -> the settings that it had; brokers work by them until they follow."""
        self.changed: list[Changed] = []
        """All changes of settings."""
        self.features: dict[str, int] = {}
        self.keys_of: dict[int, dict[Key, None]] = {}
        """Broker -> partitions that had it in ISR or ELR at any time."""
        self.leaders: dict[tuple[Key, int], int] = {}
        """(partition, leader epoch) -> who leads in it."""
        self.lives: dict[tuple[Key, int], int] = {}
        """(partition, leader epoch) -> the broker epoch of the life that was elected."""

    def place(self, key: Key) -> TopicPartition:
        """A partition by name."""
        return TopicPartition(self.topics.get(key[0], key[0].hex()), key[1])

    def setting(self, key: Key, name: str, default: str) -> str:
        """A topic's setting as the metadata have it; of a deleted topic the last that it had,
        never that of another topic with its name."""
        of_topic = self.last_settings.get(key[0])
        if of_topic is None:
            of_topic = self.configs.get((TOPIC, self.topics.get(key[0], "")), {})
        value = of_topic.get(name)
        if value is not None:
            return value
        name = BY_BROKERS.get(name, name)
        value = self.configs.get((BROKER, ""), {}).get(name)
        return self.static.get(name, default) if value is None else value

    def min_isr(self, key: Key) -> int:
        """min.insync.replicas, but never more than the partition has replicas."""
        wanted = int(self.setting(key, MIN_ISR, "1"))
        return min(wanted, max(1, len(self.partitions[key].replicas)))

    def unclean_allowed(self, key: Key) -> bool:
        """Whether the topic's settings allow unclean elections."""
        return means_true(self.setting(key, _UNCLEAN, ""))

    def is_diskless(self, key: Key) -> bool:
        """Whether the records lie in object storage, and no replica has any."""
        return means_true(self.setting(key, _DISKLESS, ""))

    def expires(self, key: Key) -> bool:
        """Whether records go with time or for want of room: each replica drops its own."""
        policy, age_ms, size = (
            self.setting(key, name, default)
            for name, default in ((POLICY, DELETES), (RETENTION_MS, ""), (RETENTION_BYTES, ""))
        )
        return deletes(policy, age_ms, size)

    def may_lead(self, partition: Partition, broker_id: int) -> bool:
        """Whether a broker is active and has the folder in which its replica lay. A replica that is
        told as lost counts for nothing until it was in sync again."""
        broker = self.brokers.get(broker_id)
        if broker is None or not broker.active:
            return False
        folders = dict(zip(partition.replicas, partition.folders, strict=False))
        folder = folders.get(broker_id, b"")
        if folder == _LOST:
            return False
        return int.from_bytes(folder) < _FIRST_FOLDER_ID or folder in broker.folders

    def hands_over(self, before: Partition, now: Partition) -> bool:
        """Whether a leader that is there gives the leadership to a replica that joins by its word:
        it leaves with a move, or its folder has no space."""
        if now.recovering or now.leader in before.isr or before.leader not in before.isr:
            return False
        broker = self.brokers.get(before.leader)
        if now.leader not in before.replicas or broker is None or not broker.active:
            return False
        return before.leader not in now.replicas or bool(broker.full)

    @property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas are kept."""
        return self.features.get(_ELR_FEATURE, 0) >= 1

    def apply(self, records: Iterable[Any], end_offset: int, epoch: int) -> Changes:
        """Take one committed batch."""
        changes = Changes()
        for record in records:
            act = getattr(self, "_on_" + type(record).__name__, None)
            if act is not None:
                act(record, changes)
        self.end_offset, self.epoch = end_offset, epoch
        return changes

    # Brokers.

    def _broker(self, broker_id: int, changes: Changes, broker: Broker) -> None:
        changes.brokers.setdefault(broker_id, self.brokers.get(broker_id))
        self.brokers[broker_id] = broker

    def _known(self, broker_id: int, epoch: int) -> Broker:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise Violation(
                "M5", "A committed record names a broker that is not registered so.",
                {"broker": broker_id, "epoch": epoch, "known": broker},
            )  # fmt: skip
        return broker

    def _on_RegisterBrokerRecord(self, record: Any, changes: Changes) -> None:  # noqa: N802
        broker = Broker(
            record.broker_epoch, record.fenced, record.in_controlled_shutdown,
            tuple(record.log_dirs), tuple(record.full_log_dirs),
        )  # fmt: skip
        self._broker(record.broker_id, changes, broker)

    def _on_UnregisterBrokerRecord(self, record: Any, changes: Changes) -> None:  # noqa: N802
        changes.brokers.setdefault(record.broker_id, self.brokers.get(record.broker_id))
        self.brokers.pop(record.broker_id, None)

    def _on_FenceBrokerRecord(self, record: Any, changes: Changes) -> None:  # noqa: N802
        known = self._known(record.id, record.epoch)
        self._broker(record.id, changes, known._replace(fenced=True, leaving=False))

    def _on_UnfenceBrokerRecord(self, record: Any, changes: Changes) -> None:  # noqa: N802
        known = self._known(record.id, record.epoch)
        self._broker(record.id, changes, known._replace(fenced=False))

    def _on_BrokerRegistrationChangeRecord(self, record: Any, changes: Changes) -> None:  # noqa: N802
        known = self._known(record.broker_id, record.broker_epoch)
        if record.fenced > 0:
            known = known._replace(fenced=True, leaving=False)
        elif record.fenced < 0:
            known = known._replace(fenced=False)
        if record.in_controlled_shutdown > 0:
            known = known._replace(leaving=True)
        if record.log_dirs:
            known = known._replace(folders=tuple(record.log_dirs))
        if record.full_log_dirs is not None:
            known = known._replace(full=tuple(record.full_log_dirs))
        self._broker(record.broker_id, changes, known)

    # Topics and partitions.

    def _on_TopicRecord(self, record: Any, _changes: Changes) -> None:  # noqa: N802
        self.topics[bytes(record.topic_id)] = record.name

    def _on_RemoveTopicRecord(self, record: Any, changes: Changes) -> None:  # noqa: N802
        topic_id = bytes(record.topic_id)
        name = self.topics.get(topic_id, "")
        for key in [key for key in self.partitions if key[0] == topic_id]:
            changes.deleted.append(key)
            del self.partitions[key]
        self.last_settings[topic_id] = self.configs.pop((TOPIC, name), {})

    def _set(self, key: Key, changes: Changes, partition: Partition) -> None:
        changes.partitions.setdefault(key, self.partitions.get(key))
        self.partitions[key] = partition
        for broker_id in (*partition.isr, *partition.elr):
            self.keys_of.setdefault(broker_id, {})[key] = None

    def _on_PartitionRecord(self, record: Any, changes: Changes) -> None:  # noqa: N802
        key = (bytes(record.topic_id), record.partition_id)
        partition = Partition(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known=tuple(record.last_known_elr or ()),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            recovering=record.leader_recovery_state == 1,
            folders=tuple(record.directories),
            adding=tuple(record.adding_replicas),
            removing=tuple(record.removing_replicas),
        )
        self._set(key, changes, partition)

    def _on_PartitionChangeRecord(self, record: Any, changes: Changes) -> None:  # noqa: N802
        key = (bytes(record.topic_id), record.partition_id)
        old = self.partitions.get(key)
        if old is None:
            raise Violation(
                "M5", "A committed record changes a partition that is not there.", {"key": key}
            )
        fields: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
        for name, value in (
            ("replicas", record.replicas),
            ("isr", record.isr),
            ("elr", record.eligible_leader_replicas),
            ("last_known", record.last_known_elr),
            ("folders", record.directories),
            ("adding", record.adding_replicas),
            ("removing", record.removing_replicas),
        ):
            if value is not None:
                fields[name] = tuple(value)
        if record.leader != -2:
            fields["leader"] = record.leader
            fields["leader_epoch"] = old.leader_epoch + 1
        if record.leader_recovery_state != -1:
            fields["recovering"] = record.leader_recovery_state == 1
        if record.replicas is not None:
            fields["observers"] = tuple(b for b in old.observers if b not in record.replicas)
        self._set(key, changes, old._replace(**fields))

    def _on_ReplicaRolesRecord(self, record: Any, changes: Changes) -> None:  # noqa: N802
        key = (bytes(record.topic_id), record.partition_id)
        old = self.partitions[key]
        self._set(key, changes, old._replace(observers=tuple(record.observers)))

    def _on_ClearElrRecord(self, record: Any, changes: Changes) -> None:  # noqa: N802
        for key, old in list(self.partitions.items()):
            if record.topic_name in ("", self.topics.get(key[0])) and (old.elr or old.last_known):
                epoch = old.partition_epoch + 1
                cleared = old._replace(elr=(), last_known=(), partition_epoch=epoch)
                self._set(key, changes, cleared)

    # Settings.

    def _on_ConfigRecord(self, record: Any, changes: Changes) -> None:  # noqa: N802
        resource = (int(record.resource_type), record.resource_name)
        values = self.configs.setdefault(resource, {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        self.changed.append(Changed(self.end_offset, resource, record.name, record.value))
        changes.configs.add(resource)
        if any(
            self.topics.get(topic_id) == record.resource_name for topic_id, _ in self.partitions
        ):
            changes.settings.add(record.name)

    def _on_FeatureLevelRecord(self, record: Any, _changes: Changes) -> None:  # noqa: N802
        self.features[record.name] = record.feature_level
