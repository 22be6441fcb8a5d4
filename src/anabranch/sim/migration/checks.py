"""MG1 to MG7: what must hold of a topic that becomes diskless, by the checker's own account.

    MG1  every acknowledged record can be read at its offset in the end, but for those that an
         operator or retention had deleted
    MG2  offsets follow each other without a hole or a repeat, where the log became diskless too
    MG3  a diskless partition begins where its log was sealed, above all that was acknowledged, and
         in a newer leader epoch; leader epochs never go back
    MG4  what an idempotent producer sent stands there once, in the order in which it sent; what it
         gave up may come late, if it goes on under another id
    MG5  what any reader was told at an offset is what stands there
    MG6  in the end the topic is what the operator wanted last, and no phase is left
    MG7  nothing of a topic that was deleted is left at the coordinator, and nothing of a classic
         log on a broker once its topic is diskless

What: clients' records, calls of the coordinator and the committed metadata are looked at. Rule
kept: nothing of `core/tiering` judges here. Not here: what classic and diskless topics must hold
at any time (`sim/checks`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from anabranch.core.diskless.rows import LogKey
from anabranch.core.types import TopicPartition
from anabranch.sim.checks.violation import Violation
from anabranch.sim.coordinator import SEALS
from anabranch.sim.history import OK
from anabranch.sim.migration.plan import TOPIC

if TYPE_CHECKING:
    from anabranch.core.diskless.rows import Change
    from anabranch.core.types import TopicId
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History


class MigrationChecks:
    """See the module. `auditor` is the reader that reads everything in the end."""

    def __init__(self, cluster: Cluster, history: History, auditor: str, partitions: int) -> None:
        assert cluster.remotes is not None
        self.cluster, self.history, self.auditor = cluster, history, auditor
        self.coordinator = cluster.remotes.coordinator
        self.ends: dict[LogKey, int] = {}
        """Where partitions were sealed last."""
        self.began: dict[LogKey, int] = {}
        """Where they became diskless."""
        self.partitions = partitions
        """With which the topic was created: others may have been diskless from the begin."""
        self.topic_id: TopicId | None = None
        self.renewing: frozenset[str] = frozenset()
        """Producers that take another id after one that they gave up."""
        self._epochs: dict[int, int] = {}
        self._sealed_epochs: dict[LogKey, int] = {}
        self.coordinator.on_called.append(self._called)
        self.coordinator.tables.listen(self._changed)

    # While it goes on.

    def look(self) -> None:
        """MG3: at the committed metadata."""
        topic = self.cluster.image.topic(TOPIC)
        if topic is None:
            return
        self.topic_id = topic.topic_id
        for index, partition in topic.partitions.items():
            before = self._epochs.get(index, -1)
            if partition.leader_epoch < before:
                raise Violation("MG3", "A leader epoch went back.", {"partition": index})
            self._epochs[index] = partition.leader_epoch

    def _called(self, name: str, args: tuple[Any, ...], _result: Any) -> None:
        if name == f"{SEALS}seal":
            (seal,) = args
            self.ends[seal.key] = seal.end_offset
            self._sealed_epochs[seal.key] = seal.leader_epoch

    def _changed(self, changes: list[Change]) -> None:
        for change in changes:
            if change.state is not None and change.key not in self.began:
                self.began[change.key] = change.state.high_watermark
                self._check_begin(change.key, change.state.high_watermark)

    def _check_begin(self, key: LogKey, begin: int) -> None:
        if begin == 0 and key not in self.ends and key.partition >= self.partitions:
            return
        if begin != self.ends.get(key):
            sentence = "A partition becomes diskless elsewhere than its log was sealed."
            raise Violation("MG3", sentence, {"at": begin, "sealed": self.ends.get(key)})
        place = TopicPartition(TOPIC, key.partition)
        for send in self.history.sends:
            if send.place == place and send.outcome == OK and send.offset >= begin:
                sentence = "A record was acknowledged behind the end that was sealed."
                raise Violation("MG3", sentence, {"offset": send.offset, "end": begin})
        topic = self.cluster.image.topic(TOPIC)
        partition = None if topic is None else topic.partitions.get(key.partition)
        if partition is not None and partition.leader_epoch <= self._sealed_epochs[key]:
            sentence = "A partition is diskless in the epoch of its last classic leader."
            raise Violation("MG3", sentence, {"epoch": partition.leader_epoch})

    # The end.

    def end(self, *, shortened: bool) -> None:
        """MG1, MG2, MG4 and MG5, once everything was read. `shortened`: retention may have taken
        records."""
        logs = self._audited()
        places = {each.place for each in self.history.sends}
        for place in sorted(places):
            log = logs.get(place, {})
            may_begin_later = shortened or place in self.history.deletes_asked
            self._check_log(place, log, may_begin_later=may_begin_later)
            self._check_producers(place, log)
        self._check_readers(logs)

    def _audited(self) -> dict[TopicPartition, dict[int, bytes]]:
        logs: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        for poll in self.history.polls:
            if poll.client == self.auditor:
                logs[poll.place].update(poll.records)
        return logs

    def _check_log(
        self, place: TopicPartition, log: dict[int, bytes], *, may_begin_later: bool
    ) -> None:
        offsets = sorted(log)
        first = offsets[0] if offsets else 0
        if first and not may_begin_later:
            raise Violation("MG1", "Records went that nobody deleted.", {"at": place, "to": first})
        if offsets != list(range(first, first + len(offsets))):
            raise Violation("MG2", "Offsets have a hole.", {"at": place, "first": first})
        for send in self.history.sends:
            if send.place != place or send.outcome != OK or send.offset < 0:
                continue
            if not offsets and may_begin_later:
                continue
            if send.offset >= first and log.get(send.offset) != send.value:
                sentence = "An acknowledged record is not at its offset."
                found = log.get(send.offset)
                raise Violation("MG1", sentence, {"id": send.id, "at": send.offset, "is": found})

    def _check_producers(self, place: TopicPartition, log: dict[int, bytes]) -> None:
        late = {
            each.id
            for each in self.history.sends
            if each.client in self.renewing and each.outcome != OK
        }
        last: dict[str, int] = {}
        seen: set[str] = set()
        for offset in sorted(log):
            sent = log[offset].decode()
            name, _, number = sent.rpartition("/")
            if sent in seen or (sent not in late and int(number) <= last.get(name, -1)):
                sentence = "A record of an idempotent producer comes twice, or too late."
                raise Violation("MG4", sentence, {"at": place, "offset": offset, "id": log[offset]})
            seen.add(sent)
            if sent not in late:
                last[name] = int(number)

    def _check_readers(self, logs: dict[TopicPartition, dict[int, bytes]]) -> None:
        for poll in self.history.polls:
            log = logs.get(poll.place, {})
            for offset, value in poll.records:
                if offset in log and log[offset] != value:
                    sentence = "A reader was told another record than stands there."
                    raise Violation("MG5", sentence, {"at": poll.place, "offset": offset})

    def left_over(self) -> str:
        """MG7: what is left of a classic log, or at the coordinator of a topic that is gone; ""
        where nothing is."""
        topic = self.cluster.image.topic(TOPIC)
        if topic is None or self._is_diskless(topic.topic_id):
            for node in self.cluster.nodes.values():
                for replica in node.broker.partitions:
                    if replica.topic_partition.topic == TOPIC:
                        return f"{node.name} has {replica.topic_partition}"
        if topic is None and self.topic_id is not None:
            for table in ("logs", "seals", "remote_logs"):
                query = f"SELECT 1 FROM {table} WHERE topic_id = ?"
                if self.coordinator.tables.rows(query, (self.topic_id,)):
                    return f"the coordinator has {table} of a topic that is gone"
        return ""

    def _is_diskless(self, topic_id: TopicId) -> bool:
        query = "SELECT 1 FROM logs WHERE topic_id = ?"
        return bool(self.coordinator.tables.rows(query, (topic_id,)))
