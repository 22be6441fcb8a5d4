"""One broker's replication as a pure machine: what it copies from leaders, and whom it counts on.

What: `follow` starts and stops copying and leading as the metadata says; `fetched` and `altered`
take answers; `tick` does what time makes due; `take_effects` says what the shell must send. Rules
kept: the shell decides nothing and may lose any answer; a step costs what it touches, so that a
broker may host many partitions. What happened to partitions is left in `broker.changed`,
`broker.unsynced` and `broker.faults`, as request handlers leave it.

Whoever steps it calls `take_effects` when it has marked itself (`core.due`). `now_ms` is the
steady clock.
Source: Kafka's ReplicaManager and AbstractFetcherThread; the shape is etcd/raft's. Not here: one
partition's rules (`in_sync`, `follower`), sessions (`fetcher`), opening and closing logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from anabranch.core.due import REPLICATION
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.metadata.image import RECOVERING
from anabranch.core.replication.calls import Calls
from anabranch.core.replication.controller_requests import ControllerRequests
from anabranch.core.replication.effects import (
    Cut,
    Effect,
    Obstacle,
    SendAlterPartition,
    SendFetch,
)
from anabranch.core.replication.fetcher import READY_MS, Fetcher, is_session_end
from anabranch.core.replication.follower import FollowedPartition, Next
from anabranch.core.replication.in_sync import Verdict, confirms, lagging, may_join, propose, settle
from anabranch.core.replication.throttles import Throttle
from anabranch.core.types import NEVER_MS, NO_LEADER, TopicPartition

if TYPE_CHECKING:
    from anabranch.core.replication.host import Host
    from anabranch.core.replication.progress import Heard
    from anabranch.core.replication.replica import Replica
    from anabranch.core.wire.messages.alter_partition import AlterPartitionResponse
    from anabranch.core.wire.messages.fetch import FetchResponse, PartitionData
    from anabranch.core.wire.own_fields import Lag

ALTER_RETRY_MS = 50
"""Pause before the controller is asked again after it did not answer (Kafka's)."""
MOST_CUTS = 1000
"""Truncations, and obstacles, that wait to be told; beyond that they are counted only."""


class Replication:
    """All partitions of a broker. `statistics` counts what operators ask for."""

    def __init__(self, broker: Host) -> None:
        self._broker = broker
        self._mark = broker.mailbox.due.marker(REPLICATION)
        self._now_ms = 0
        self._followed: dict[TopicPartition, tuple[FollowedPartition, Fetcher]] = {}
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._delayed: list[tuple[int, int, FollowedPartition, Fetcher]] = []
        self._order = count()
        self._shared: dict[TopicPartition, tuple[Replica, int, int]] = {}
        """Led here with more than one in sync: replica, leader epoch, since when."""
        self._calls = Calls()
        self._shrink_ms = NEVER_MS
        self._asking = ControllerRequests()
        self._altering: SendAlterPartition | None = None
        self._alter_retry_ms = READY_MS
        self.leader_throttle, self.follower_throttle = Throttle(), Throttle()
        self._reminders: dict[Hashable, int] = {}
        self._remind_ms = NEVER_MS
        self.isr_shrinks = self.isr_expands = self.isr_failures = self.truncations = 0
        self.cuts: deque[Cut] = deque(maxlen=MOST_CUTS)
        """What followers here dropped since the shell told of it last."""
        self.obstacles: deque[Obstacle] = deque(maxlen=MOST_CUTS)
        """Why followers here do not get on, each cause once, since the shell told of it last."""

    # Following the metadata.

    def follow_states(self, places: Iterable[TopicPartition] | None, now_ms: int) -> None:
        """Do as the replicas' new states say, for these partitions or (None) for all.

        After `Replica.take_state`, and after a replica was hosted, dropped or taken offline.
        """
        self._now_ms = now_ms
        self._mark()
        partitions = self._broker.partitions
        if places is None:
            hosted = [replica.topic_partition for replica in partitions]
            places = dict.fromkeys((*hosted, *self._followed, *self._shared))
        for place in places:
            replica = partitions.get(*place)
            if replica is None:
                self._stop_following(place)
                self._shared.pop(place, None)
                self._asking.forget(place)
            elif replica.is_leader:
                self._stop_following(place)
                self._lead(replica)
            else:
                self._shared.pop(place, None)
                self._asking.forget(place)
                self._follow(replica)

    def _lead(self, replica: Replica) -> None:
        self._note_shared(replica)
        if replica.recovery_state == RECOVERING and replica.proposal is None:
            self._propose(replica, replica.in_sync_replicas)

    def _note_shared(self, replica: Replica) -> None:
        """Watch a led partition's followers, when there are any in sync."""
        place = replica.topic_partition
        if len(replica.in_sync_replicas) < 2:
            self._shared.pop(place, None)
            return
        known = self._shared.get(place)
        if known is None or known[0] is not replica or known[1] != replica.leader_epoch:
            self._shared[place] = (replica, replica.leader_epoch, self._now_ms)
            self._calls.begin(self._now_ms)
        if self._shrink_ms == NEVER_MS:
            self._shrink_ms = self._now_ms + self._broker.config.replica_lag_time_max_ms // 2

    def _follow(self, replica: Replica) -> None:
        place = replica.topic_partition
        known = self._followed.get(place)
        if known is not None:
            following = known[0]
            if following.replica is replica and following.leader_epoch == replica.leader_epoch:
                return
            self._stop_following(place)
        if replica.leader_id in (NO_LEADER, self._broker.broker_id):
            return
        following = FollowedPartition(replica)
        fetcher = self._fetcher(replica)
        self._followed[place] = (following, fetcher)
        self._go_on(following, fetcher)

    def _stop_following(self, place: TopicPartition) -> None:
        known = self._followed.pop(place, None)
        if known is not None:
            following, fetcher = known
            fetcher.remove(following)

    def _fetcher(self, replica: Replica) -> Fetcher:
        """The connection that copies a partition: always the same for the same partition."""
        spread = int.from_bytes(replica.topic_id[:4]) + replica.topic_partition.partition
        index = spread % max(1, self._broker.config.num_replica_fetchers)
        key = (replica.leader_id, index)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = Fetcher(*key)
        return fetcher

    # Copying.

    def fetched(self, effect: SendFetch, response: FetchResponse, now_ms: int) -> None:
        """A leader has answered."""
        fetcher = self._sender(effect)
        if fetcher is None:
            return
        self._now_ms = now_ms
        self._mark()
        if self._broker.suspects:
            self._broker.suspects.answered(effect.leader_id)
        code = fetcher.answered(response, now_ms)
        if code != ErrorCode.NONE:
            if not is_session_end(code):
                fetcher.retry_ms = now_ms + self._broker.config.replica_fetch_backoff_ms
            return
        for following, answer in fetcher.answers(response):
            self._take(following, fetcher, answer)

    def fetch_failed(self, effect: SendFetch, now_ms: int) -> None:
        """No answer came: try again after a pause, in a new session."""
        fetcher = self._sender(effect)
        if fetcher is not None:
            self._now_ms = now_ms
            self._mark()
            fetcher.begin_anew()
            fetcher.retry_ms = now_ms + self._broker.config.replica_fetch_backoff_ms
            leader = self._broker.image.brokers.get(effect.leader_id)
            self._broker.suspects.no_answer(leader, now_ms)

    def _sender(self, effect: SendFetch) -> Fetcher | None:
        fetcher = self._fetchers.get((effect.leader_id, effect.fetcher))
        return fetcher if fetcher is not None and fetcher.in_flight is effect else None

    def _take(self, following: FollowedPartition, fetcher: Fetcher, answer: PartitionData) -> None:
        replica = following.replica
        high_watermark, end_offset = replica.high_watermark, replica.log.end_offset
        try:
            then = following.take(answer, self._broker.wall_ms)
        except StorageFault as fault:
            self._broker.faults.append((replica, fault))
            then = Next.LATER
        except ApiError as refusal:
            self._note_obstacle(following, refusal.message)
            then = Next.LATER
        else:
            following.obstacle = ""
        if replica.log.end_offset < end_offset:
            self._note_cut(following, end_offset)
        if replica.high_watermark != high_watermark:
            self._broker.changed[replica.topic_partition] = None
        if replica.is_throttled_follower and answer.records:
            size_bytes = len(answer.records)
            self.follower_throttle.record(size_bytes, self._now_ms, self._broker.config)
        if then is Next.FETCH:
            self._go_on(following, fetcher)
        elif then is Next.LATER:
            longest_ms = self._broker.config.replica_fetch_backoff_ms
            self._delay(following, fetcher, following.pause_ms(longest_ms))
        elif then is Next.STOPPED:
            fetcher.remove(following)

    def _go_on(self, following: FollowedPartition, fetcher: Fetcher) -> None:
        """Ask for what follows: with the next request, or when a throttle allows it."""
        rest_ms = self._rest_ms(following.replica)
        if rest_ms:
            self._delay(following, fetcher, rest_ms)
        else:
            fetcher.add(following)
        self._await_sync(following, fetcher)

    def _rest_ms(self, replica: Replica) -> int:
        config, log = self._broker.config, replica.log
        if log.room.is_full:
            return config.replica_fetch_backoff_ms  # copied, it would be thrown away
        known_end = replica.leader_high_watermark
        if not replica.is_throttled_follower or 0 <= known_end <= log.end_offset:
            return 0  # in sync, as far as it knows
        limit = config.follower_replication_throttled_rate
        return self.follower_throttle.rest_ms(limit, self._now_ms, config)

    def _note_obstacle(self, following: FollowedPartition, why: str) -> None:
        if following.obstacle != why:
            following.obstacle = why
            place = following.replica.topic_partition
            self.obstacles.append(Obstacle(place, following.leader_id, why))

    def _note_cut(self, following: FollowedPartition, end_offset: int) -> None:
        replica = following.replica
        self.truncations += not following.copies_again
        self.cuts.append(
            Cut(
                replica.topic_partition,
                following.leader_id,
                following.leader_epoch,
                replica.log.end_offset,
                end_offset,
                following.copies_again,
            )
        )

    def _await_sync(self, following: FollowedPartition, fetcher: Fetcher) -> None:
        """Have a log synced where that is due; what must be flushed first holds the next fetch."""
        replica, log = following.replica, following.replica.log
        if replica.flushed_counts and log.flushed_offset < log.end_offset:
            fetcher.unsynced[following.key] = following
            self._broker.unsynced.add(replica.topic_partition)
        elif log.sync_due(self._broker.wall_ms):
            self._broker.unsynced.add(replica.topic_partition)

    def _delay(self, following: FollowedPartition, fetcher: Fetcher, pause_ms: int) -> None:
        """Ask for a partition again after a pause."""
        fetcher.remove(following)
        due_ms = self._now_ms + pause_ms
        heappush(self._delayed, (due_ms, next(self._order), following, fetcher))

    # In-sync replicas.

    def follower_fetched(
        self,
        replica: Replica,
        follower_id: int,
        fetch_offset: int,
        *,
        broker_epoch: int,
        start_offset: int,
        heard: Heard | None = None,
    ) -> None:
        """A leader's part in a follower's fetch: raise the high watermark, let the follower join.

        `heard` is the session's, which speaks for the follower as long as it says nothing new.

        Raises NOT_LEADER_OR_FOLLOWER for a broker that is no replica, or was when it sent this but
        has registered anew since.
        """
        broker = self._broker
        if follower_id not in replica.replicas and follower_id not in replica.observers:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        registered = broker.image.brokers.get(follower_id)
        if registered is not None and 0 <= broker_epoch < registered.epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        follower = replica.progress_of(follower_id)
        follower.heard = heard
        known_start = follower.start_offset
        if replica.follower_fetched(
            follower_id,
            fetch_offset,
            now_ms=broker.steady_ms,
            broker_epoch=broker_epoch,
            start_offset=start_offset,
        ) or (known_start != start_offset):
            broker.changed[replica.topic_partition] = None
        if follower_id not in replica.in_sync_replicas:
            if may_join(replica, follower, broker.image):
                self._propose(replica, (*replica.in_sync_replicas, follower_id))

    def follower_let_go(self, place: TopicPartition, follower_id: int) -> None:
        """A follower takes a partition out of its session, which speaks for it no more."""
        replica = self._broker.partitions.get(*place)
        follower = None if replica is None else replica.followers.get(follower_id)
        if replica is not None and follower is not None:
            follower.stayed(replica.log.end_offset)
            follower.heard = None

    def holds_back(self, replica: Replica, follower_id: int) -> bool:
        """Whether a follower gets no records of a partition led here, for the throttle's sake."""
        if not replica.is_throttled_leader or follower_id in replica.in_sync_replicas:
            return False
        config, now_ms = self._broker.config, self._broker.steady_ms
        limit = config.leader_replication_throttled_rate
        return self.leader_throttle.rest_ms(limit, now_ms, config) > 0

    def _propose(self, replica: Replica, isr: tuple[int, ...], lags: tuple[Lag, ...] = ()) -> None:
        propose(replica, isr, self._broker.broker_epoch, lags)
        self._asking.propose(replica)
        self._mark()

    def _shrink(self) -> None:
        """Propose to take out followers that lag, of every partition that has some in sync."""
        longest_ms = self._broker.config.replica_lag_time_max_ms
        for replica, _, since_ms in self._shared.values():
            if replica.proposal is None:
                late = lagging(replica, self._now_ms, longest_ms, since_ms)
                if late:
                    leaving = {each.broker_id for each in late}
                    isr = tuple(each for each in replica.in_sync_replicas if each not in leaving)
                    self._propose(replica, isr, late)
        self._shrink_ms = self._now_ms + longest_ms // 2 if self._shared else NEVER_MS

    def ask_whether_leading(self, replica: Replica) -> int:
        """Have the controller say whether this broker still leads a partition. Returns the number
        of the question that is meant: see `Replica.confirmed`. Whoever waits asks again."""
        self._mark()
        return self._asking.doubt(replica)

    def altered(
        self, effect: SendAlterPartition, response: AlterPartitionResponse, now_ms: int
    ) -> None:
        """The controller has answered."""
        if effect is not self._altering:
            return
        self._mark()
        if response.error_code:
            self.alter_failed(effect, now_ms)
            return
        self._now_ms = now_ms
        self._altering = None
        answers = {
            (topic.topic_id, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        for replica, proposal in effect.proposals:
            answer = answers.get((replica.topic_id, replica.topic_partition.partition))
            verdict = Verdict.AGAIN
            if answer is not None:
                if confirms(replica, proposal, answer):
                    replica.confirmed = effect.number
                    self._broker.changed[replica.topic_partition] = None
                verdict = settle(replica, proposal, answer)
                if answer.error_code == ErrorCode.NONE:  # the metadata may have told it already
                    self.isr_expands += proposal.growth > 0
                    self.isr_shrinks += proposal.growth < 0
            self._settled(replica, verdict)

    def _settled(self, replica: Replica, verdict: Verdict) -> None:
        if verdict is Verdict.COMMITTED:
            self._note_shared(replica)
        elif verdict is not Verdict.OUTDATED:
            self.isr_failures += 1
        if verdict is Verdict.AGAIN:
            self._asking.propose(replica)
            self._alter_retry_ms = self._now_ms + ALTER_RETRY_MS
        elif replica.advance() or verdict is Verdict.COMMITTED:
            self._broker.changed[replica.topic_partition] = None

    def alter_failed(self, effect: SendAlterPartition, now_ms: int) -> None:
        """The controller did not answer: ask again for what is still wanted."""
        if effect is not self._altering:
            return
        self._mark()
        self._now_ms = now_ms
        self._altering = None
        for replica, proposal in effect.proposals:
            if replica.proposal is proposal:
                self._asking.propose(replica)
                self.isr_failures += 1
            else:
                self._broker.changed[replica.topic_partition] = None  # who waits for it asks again
        self._alter_retry_ms = now_ms + ALTER_RETRY_MS

    # Time and effects.

    def registered(self) -> None:
        """The broker has another epoch, perhaps its first: see `take_effects`."""
        self._mark()

    def log_synced(self) -> None:
        """A sync round of some log has ended: a fetch may have waited for it."""
        self._mark()

    def remind(self, key: Hashable, due_ms: int) -> None:
        """Say that `key` has changed when the steady clock reaches `due_ms`."""
        self._reminders[key] = due_ms
        self._remind_ms = min(self._remind_ms, due_ms)
        self._mark()

    def _remind(self, now_ms: int) -> None:
        for key in [each for each, due_ms in self._reminders.items() if due_ms <= now_ms]:
            del self._reminders[key]
            self._broker.changed[key] = None
        self._remind_ms = min(self._reminders.values(), default=NEVER_MS)

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        self._now_ms = now_ms
        self._mark()
        while self._delayed and self._delayed[0][0] <= now_ms:
            _, _, following, fetcher = heappop(self._delayed)
            if self._followed.get(following.replica.topic_partition) == (following, fetcher):
                self._go_on(following, fetcher)
        for fetcher in self._fetchers.values():
            if fetcher.retry_ms <= now_ms:
                fetcher.retry_ms = READY_MS
        if self._alter_retry_ms <= now_ms:
            self._alter_retry_ms = READY_MS
        if self._shrink_ms <= now_ms:
            self._shrink()
        if self._calls.due_ms <= now_ms:
            self._broker.changed.update(dict.fromkeys(self._broker.fetch_sessions.called(now_ms)))
            self._calls.made(now_ms)
        if self._remind_ms <= now_ms:
            self._remind(now_ms)

    @property
    def next_tick_ms(self) -> int:
        """When `tick` has something to do, `NEVER_MS` for never."""
        due_ms = min(self._shrink_ms, self._remind_ms, self._calls.due_ms)
        if self._delayed:
            due_ms = min(due_ms, self._delayed[0][0])
        if self._alter_retry_ms != READY_MS:
            due_ms = min(due_ms, self._alter_retry_ms)
        for fetcher in self._fetchers.values():
            if fetcher.retry_ms != READY_MS:
                due_ms = min(due_ms, fetcher.retry_ms)
        return due_ms

    def take_effects(self) -> list[Effect]:
        """What is to be sent now, in order; nothing before this process is registered."""
        effects: list[Effect] = []
        if self._broker.broker_epoch < 0:
            return effects
        for fetcher in self._fetchers.values():
            if fetcher.in_flight is not None:
                continue  # whatever is due waits for its answer
            if fetcher.unsynced:
                fetcher.release_synced()
            if fetcher.is_ready:
                effects.append(fetcher.request(self._broker))
        if self._asking and self._altering is None and self._alter_retry_ms == READY_MS:
            broker = self._broker
            self._altering = self._asking.request(broker.broker_id, broker.broker_epoch)
            if self._altering is not None:
                effects.append(self._altering)
        return effects

    def statistics(self) -> dict[str, int]:
        """Counts for metrics."""
        return {
            "followed": len(self._followed),
            "fetchers": sum(bool(fetcher.active) for fetcher in self._fetchers.values()),
            "delayed": len(self._delayed),
            "isr_expands": self.isr_expands,
            "isr_shrinks": self.isr_shrinks,
            "isr_failures": self.isr_failures,
            "truncations": self.truncations,
        }
