"""RL1 to RL6: what must hold of remote logs, by the checker's own account.

    RL1  an object is stored only where a fact names its try, and is deleted only once that is being
        removed
    RL2  what becomes FINISHED has all its objects, and its batches are batches of the log
    RL3  a local log begins later only where finished segments have each batch of it that goes
    RL4  a recorded log start only rises, and not above what is committed
    RL5  no finished segment is removed that alone has committed batches behind the log start
    RL6  in the end each object is a finished segment's, and each fact one that a log needs

What: calls of the coordinator and the store are looked at when they are carried out, brokers after
each of their events. Segments' batches are read from the objects themselves. Rule kept: nothing of
`core/remote` judges here but names and states. Not here: what readers see (`anomalies.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.diskless.rows import LogKey
from anabranch.core.log.segment import LOG
from anabranch.core.remote.keys import place_of, remote_prefix, segment_folder, upload_names
from anabranch.core.remote.segments import RemoteSegment, SegmentId, SegmentState
from anabranch.sim.checks.entries import Entry, entries_of
from anabranch.sim.checks.model import REMOTE_STORAGE, TOPIC, means_true
from anabranch.sim.checks.violation import Violation
from anabranch.sim.cluster import Watcher
from anabranch.sim.coordinator import REMOTE
from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.core.replication.replica import Replica
    from anabranch.sim.checks.suite import Suite
    from anabranch.sim.checks.truth import Truth
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.node import SimNode
    from anabranch.sim.remotes import Remotes

MARKED = {"finish": "remote-copied", "forget": "remote-forgotten"}


class RemoteChecks(Watcher):
    """See the module. It registers itself with cluster, store and coordinator."""

    def __init__(self, cluster: Cluster, remotes: Remotes, suite: Suite) -> None:
        self.cluster, self.remotes, self.suite = cluster, remotes, suite
        self.logs, self.marks = suite.logs, suite.marks
        self._rows = remotes.coordinator.tables.rows
        self._held: dict[SegmentId, tuple[RemoteSegment, frozenset[Entry]]] = {}
        """Segments that became FINISHED, and their batches."""
        self._cut: set[tuple[LogKey, Entry]] = set()
        """Batches that an unclean election had lost when their segments were removed: another one
        may bring a log back that had them."""
        self._starts: dict[LogKey, int] = {}
        """Recorded log starts."""
        self._local: dict[Replica, int] = {}
        """Where the logs of living processes begin locally."""
        remotes.objects.on_put.append(self._put)
        remotes.objects.on_delete.append(self._delete)
        remotes.coordinator.on_called.append(self._called)
        cluster.checks.append(self)

    # Objects.

    def _state(self, segment_id: SegmentId) -> SegmentState | None:
        found = self._rows("SELECT state FROM remote_segments WHERE segment_id = ?", (segment_id,))
        return SegmentState(found[0][0]) if found else None

    def _put(self, object_key: str) -> None:
        place = place_of(object_key)
        if place is None or self._state(place.segment_id) is None:
            raise Violation(
                "RL1", "An object is stored whose try no fact names.", {"object": object_key}
            )

    def _delete(self, object_key: str) -> None:
        place = place_of(object_key)
        state = None if place is None else self._state(place.segment_id)
        if state not in (None, SegmentState.DELETE_SEGMENT_STARTED):
            raise Violation(
                "RL1", "An object is deleted that a fact names.",
                {"object": object_key, "state": state},
            )  # fmt: skip

    # Facts.

    def _called(self, name: str, args: tuple[Any, ...], _result: Any) -> None:
        if not name.startswith(REMOTE):
            if name == "delete_topics":
                for topic_id in args[1]:
                    self._topic_deleted(topic_id)
            return
        name = name.removeprefix(REMOTE)
        if name == "lead":
            self._led(args[0])
        elif name == "finish":
            self._finished(args[0])
        elif name == "begin_removal":
            self._removal(*args)
        elif name == "forget":
            self._forgotten(args[0])
        if name in MARKED:
            self.marks.hit(MARKED[name])

    def _led(self, key: LogKey) -> None:
        """What an unclean election has lost of a log may be before the start that was recorded."""
        self._starts[key] = min(self._starts.get(key, 0), self._recorded(key))

    def _recorded(self, key: LogKey) -> int:
        found = self._rows(
            "SELECT log_start_offset FROM remote_logs WHERE topic_id = ? AND partition = ?", key
        )
        return int(found[0][0]) if found else self._starts.get(key, 0)

    def _finished(self, segment: RemoteSegment) -> None:
        if segment.segment_id in self._held:
            return  # asked again
        folder = segment_folder(self.cluster.cluster_id, segment.key, segment.segment_id)
        objects = self.remotes.objects.objects
        for name in upload_names(segment):
            if folder + name not in objects:
                raise Violation(
                    "RL2", "A segment is FINISHED of which an object is missing.",
                    {"segment": segment.segment_id.hex(), "object": name},
                )  # fmt: skip
            if name.endswith(LOG):
                self._held[segment.segment_id] = (
                    segment, self._batches(segment, objects[folder + name].data)
                )  # fmt: skip

    def _batches(self, segment: RemoteSegment, data: bytes) -> frozenset[Entry]:
        entries = list(entries_of(data))
        truth = self.logs.truths.get(segment.key)
        begins = entries[0].base if entries else -1
        ends = entries[-1].end if entries else -1
        if begins != segment.start_offset or ends != segment.end_offset:
            raise Violation(
                "RL2", "A segment has other offsets than its fact says.",
                {"segment": segment.segment_id.hex(), "has": (begins, ends),
                 "says": (segment.start_offset, segment.end_offset)},
            )  # fmt: skip
        for entry in entries:
            known = None if truth is None else truth.written.get((entry.base, entry.epoch))
            if known is not None and known != entry and not self._is_rotten(segment):
                raise Violation(
                    "RL2", "A segment has a batch that is another one in the log.",
                    {"segment": segment.segment_id.hex(), "has": tuple(entry)},
                )  # fmt: skip
        return frozenset(entries)

    def _is_rotten(self, segment: RemoteSegment) -> bool:
        """Whether a bit of its broker's disk flipped: what is copied may differ."""
        seat = self.logs.seats.get(segment.broker_id)
        copy = seat.copies.get(segment.key) if seat is not None else None
        return copy is None or copy.is_rotten

    def _removal(
        self, key: LogKey, leader_epoch: int, log_start: int, finished: Any, given_up: Any
    ) -> None:
        truth = self.logs.truths.get(key)
        before = self._starts.get(key, 0)
        now = self._recorded(key)
        if now < before:
            raise Violation(
                "RL4", "A recorded log start went back.", {"before": before, "now": now}
            )
        self._starts[key] = now
        if truth is not None and log_start > max(truth.peak, truth.start):
            raise Violation(
                "RL4", "A log start is recorded above what is committed.",
                {"start": log_start, "committed": truth.high},
            )  # fmt: skip
        if now > before:
            self.marks.hit("remote-log-start-raised")
        if given_up:
            self.marks.hit("remote-try-given-up")
        if finished and truth is not None:
            self.marks.hit("remote-removed")
            self._note_cut(key, finished, truth)
            self._check_covered(key, leader_epoch, truth)

    def _note_cut(self, key: LogKey, finished: Any, truth: Truth) -> None:
        held = [self._held[each][1] for each in finished if each in self._held]
        if truth.resets:
            self._cut |= {(key, each) for some in held for each in some if not truth.holds(each)}

    def _check_covered(self, key: LogKey, leader_epoch: int, truth: Truth) -> None:
        """RL5, as far as it is known what the leader has that asked."""
        leader = self.logs.model.leaders.get((key, leader_epoch))
        node = self.cluster.nodes.get(-1 if leader is None else leader)
        if truth.led_epoch != leader_epoch or truth.reset_epoch > leader_epoch or node is None:
            return
        replica = self._replica(node, key)
        if replica is None:
            return
        floor = max(self._starts.get(key, 0), truth.start)
        needed = truth.between(floor, replica.log.local_start_offset)
        needed = [each for each in needed if (key, each) not in self._cut]
        self._check_held(key, needed, "RL5", node)

    def _replica(self, node: SimNode, key: LogKey) -> Replica | None:
        return next(
            (each for each in node.broker.partitions if self.logs.key_of(each) == key), None
        )

    def _check_held(self, key: LogKey, entries: list[Entry], rule: str, node: SimNode) -> None:
        held = [
            batches
            for segment_id, (segment, batches) in self._held.items()
            if segment.key == key and self._state(segment_id) is SegmentState.COPY_SEGMENT_FINISHED
        ]
        for entry in entries:
            if not any(entry in batches for batches in held):
                sentences = {
                    "RL3": "A local log begins behind a batch that no finished segment has.",
                    "RL5": "A segment is removed that alone has a committed batch.",
                }
                raise Violation(
                    rule, sentences[rule],
                    {"node": node.name, "partition": self.logs.model.place(key),
                     "batch": tuple(entry)},
                )  # fmt: skip

    def _forgotten(self, segment_ids: Any) -> None:
        for segment_id in segment_ids:
            if self._state(segment_id) is None:
                self._held.pop(segment_id, None)

    def _topic_deleted(self, topic_id: bytes) -> None:
        for key in [each for each in self._starts if each.topic_id == topic_id]:
            del self._starts[key]
            self.marks.hit("remote-topic-deleted")

    # Brokers.

    def event_ended(self, node: SimNode | None) -> None:
        if node is None or not (node.state is State.RUNNING or node.state is State.PAUSED):
            return
        for replica in node.broker.partitions:
            log = replica.log
            if not log.config.has_remote or log.fault is not None:
                continue
            before = self._local.get(replica)
            if before != log.local_start_offset:
                self._local[replica] = log.local_start_offset
                if before is not None and before < log.local_start_offset:
                    self._check_dropped(node, replica, before)

    def _check_dropped(self, node: SimNode, replica: Replica, before: int) -> None:
        key = LogKey(replica.topic_id, replica.topic_partition.partition)
        seat = self.logs.seats.get(node.node_id)
        copy = seat.copies.get(key) if seat is not None else None
        log = replica.log
        if copy is None or not copy.is_sure or copy.is_rotten or copy.is_given_up:
            return
        if log.end_offset == log.local_start_offset and before < log.local_start_offset:
            return  # it begins anew where the leader's does: what the leader dropped was looked at
        floor = max(log.start_offset, before, self._starts.get(key, 0))
        gone = [
            each
            for each in copy.entries
            if floor < each.end <= log.local_start_offset and each not in copy.holes
        ]
        self.marks.hit("remote-local-dropped")
        self._check_held(key, gone, "RL3", node)

    def node_changed(self, node: SimNode, what: str) -> None:
        if what in ("crash", "power", "stop"):
            self._local = {
                each: start
                for each, start in self._local.items()
                if self.cluster.nodes[node.node_id].broker.partitions.get(*each.topic_partition)
                is not each
            }
            if node.remote_logs is not None and node.remote_logs.is_copying:
                self.marks.hit("remote-crash-while-copying")

    # The end.

    def garbage(self) -> list[str]:
        """What is left that no log needs."""
        found: list[str] = []
        finished: set[str] = set()
        query = (
            "SELECT segment_id, topic_id, partition, start_offset, end_offset, state "
            "FROM remote_segments ORDER BY segment_id"
        )
        for segment_id, topic_id, partition, start, end, state in self._rows(query):
            key = LogKey(topic_id, partition)
            if self._has_no_leader(key):
                finished.add(segment_id.hex())
            elif state != SegmentState.COPY_SEGMENT_FINISHED:
                found.append(f"{segment_id.hex()} {start}-{end} {SegmentState(state).name}")
            elif self._has_ended(key):
                found.append(f"{segment_id.hex()} {start}-{end} is of a log that was switched off")
            elif end <= self._starts.get(key, 0):
                found.append(f"{segment_id.hex()} {start}-{end} lies before the log start")
            else:
                finished.add(segment_id.hex())
        prefix = remote_prefix(self.cluster.cluster_id)
        for object_key in sorted(self.remotes.objects.objects):
            if object_key.startswith(prefix) and object_key.split("/")[-2] not in finished:
                found.append(object_key)
        return found

    def _has_ended(self, key: LogKey) -> bool:
        """Whether the topic has no remote log any more."""
        topic = self.cluster.image.topic_by_id(key.topic_id)
        own = {} if topic is None else self.cluster.image.config(TOPIC, topic.name)
        return topic is not None and not means_true(own.get(REMOTE_STORAGE, ""))

    def _has_no_leader(self, key: LogKey) -> bool:
        """Whether a partition has no leader who could see to it, for good."""
        topic = self.cluster.image.topic_by_id(key.topic_id)
        if topic is None:
            return False
        state = topic.partitions.get(key.partition)
        node = None if state is None else self.cluster.nodes.get(state.leader)
        return node is None or self._replica(node, key) is None

    def end(self) -> None:
        """RL6 of what is FINISHED: all of it is there."""
        for segment_id, (segment, _) in self._held.items():
            if self._state(segment_id) is SegmentState.COPY_SEGMENT_FINISHED:
                folder = segment_folder(self.cluster.cluster_id, segment.key, segment_id)
                for name in upload_names(segment):
                    if folder + name not in self.remotes.objects.objects:
                        raise Violation(
                            "RL6", "An object of a finished segment is gone.",
                            {"object": folder + name},
                        )  # fmt: skip
