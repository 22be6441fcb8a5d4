"""What a controller does by the clock: preferred leaders lead again, and leaderless partitions are
looked at again.

What: every `leader.imbalance.check.interval.seconds` the brokers of whose preferred leaderships
more than `leader.imbalance.per.broker.percentage` are led elsewhere get them back where that is
clean; every `unclean.leader.election.interval.ms` partitions without a leader, of topics that allow
it, elect uncleanly; replicas that no broker has yet get one
(`core/controller/partitions/missing_replicas.py`); a plan of moves goes on
(`core/controller/moves/plan_progress.py`); observers follow their topics' constraints
(`core/controller/partitions/observer_placement.py`); diskless partitions follow the racks
(`core/controller/diskless/reconciler.py`); topics become diskless
(`core/controller/diskless/migrations.py`); delegation tokens that are over are removed
(`core/controller/delegation_tokens.py`). Why the percentage: older Kafka had it, and
clusters set it, although newer Kafka dropped it; at 0 any imbalance counts, as in Kafka 4. Rules
kept: at most MOST_RECORDS a run, the rest after a short pause, so that one batch stays small; a run
looks only at partitions that are led elsewhere, or by nobody.

Source: Kafka's ReplicationControlManager (maybeBalancePartitionLeaders,
maybeElectUncleanLeaders). A dynamic change of `unclean.leader.election.enable`
elects nothing by itself: the next run does.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.controller.brokers.membership import Consequences, is_active
from anabranch.core.controller.brokers.sessions import AFTER_A_HIT_MS, Sessions
from anabranch.core.controller.cluster_state import ClusterState, PartitionKey
from anabranch.core.controller.delegation_tokens import TokenDuty
from anabranch.core.controller.diskless.migrations import MigrationDuty
from anabranch.core.controller.diskless.reconciler import ReconcilerDuty
from anabranch.core.controller.moves.plan_progress import PlanDuty, is_carried
from anabranch.core.controller.partitions.elections import change_isr, prefer_first
from anabranch.core.controller.partitions.missing_replicas import MissingReplicasDuty
from anabranch.core.controller.partitions.observer_placement import ObserverDuty
from anabranch.core.controller.reasons import Code, leader_reason
from anabranch.core.controller.result import Reason, Result
from anabranch.core.controller.token_index import TokenIndex
from anabranch.core.sentences import number_of
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import NO_TIME_MS
from anabranch.core.wire.metadata_records import MetadataRecord, PartitionChangeRecord

MOST_RECORDS = 1000
"""Elections a run: Kafka's."""


class Duties:
    """When each duty is due, on the steady clock, and whom a balance under way still concerns."""

    def __init__(self, config: BrokerConfig, now_ms: int) -> None:
        self.balance_ms = now_ms + _balance_interval_ms(config)
        self.unclean_ms = now_ms + config.unclean_leader_election_interval_ms
        self.missing_replicas = MissingReplicasDuty(now_ms)
        self.plan = PlanDuty(now_ms)
        self.observers = ObserverDuty(now_ms)
        self.diskless = ReconcilerDuty(now_ms)
        self.migrations = MigrationDuty(now_ms)
        self.tokens = TokenDuty(config, now_ms)
        self.balancing: frozenset[int] | None = None
        """Brokers that are being given their leaderships back, None between runs."""

    def next_ms(self, state: ClusterState, config: BrokerConfig) -> int:
        """When something is due next."""
        due = [self.unclean_ms]
        if config.auto_leader_rebalance_enable:
            due.append(self.balance_ms)
        if state.short:
            due.append(self.missing_replicas.due_ms)
        if is_carried(state.image.plan):
            due.append(self.plan.due_ms)
        if state.racks.constrained:
            due.append(self.observers.due_ms)
        if state.diskless.keys or state.image.absences:
            due.append(self.diskless.due_ms)
        if state.migrating:
            due.append(self.migrations.due_ms)
        if state.image.tokens:
            due.append(self.tokens.due_ms)
        return min(due)

    def due(
        self,
        state: ClusterState,
        sessions: Sessions,
        config: BrokerConfig,
        now_ms: int,
        tokens: TokenIndex,
        *,
        hears: bool = True,
        wall_ms: int = NO_TIME_MS,
    ) -> Result[None] | None:
        """The decision of a duty that is due, if it has something to decide. `hears` says whether
        the controller hears any broker; `wall_ms` is the time of day, for tokens alone."""
        if config.auto_leader_rebalance_enable and now_ms >= self.balance_ms:
            result = self._balance(state, sessions, config, now_ms)
            if result is not None:
                return result
        result = self.migrations.due(state, now_ms)
        if result is None:
            result = self.missing_replicas.due(state, sessions, config, now_ms)
        if result is None:
            result = self.plan.due(state, sessions, config, now_ms)
        if result is None:
            result = self.observers.due(state, now_ms)
        if result is None:  # after all classic moves: it never starves them
            result = self.diskless.due(state, config, now_ms, hears=hears)
        if result is None and state.image.tokens:
            result = self.tokens.due(state.image.tokens, tokens, config, now_ms, wall_ms)
        if result is not None:
            return result
        if now_ms >= self.unclean_ms:
            return self._elect_uncleanly(state, sessions, config, now_ms)
        return None

    def _balance(
        self, state: ClusterState, sessions: Sessions, config: BrokerConfig, now_ms: int
    ) -> Result[None] | None:
        brokers = self.balancing
        if brokers is None:
            brokers = imbalanced(state, config.leader_imbalance_per_broker_percentage)
        consequences = Consequences(state, config, sessions.suspects)
        records = tuple(_first(_preferred(consequences, brokers)))
        full = len(records) == MOST_RECORDS
        self.balancing = brokers if full else None
        self.balance_ms = now_ms + (AFTER_A_HIT_MS if full else _balance_interval_ms(config))
        if not records:
            return None
        more = ", more to come" if full else ""
        reason = Reason(
            Code.LEADERS_REBALANCED,
            f"back to preferred brokers: {number_of(len(records), 'leadership')}{more}",
            {"count": len(records), "brokers": sorted(brokers)},
        )
        return Result(records, None, (reason,), atomic=False)

    def _elect_uncleanly(
        self, state: ClusterState, sessions: Sessions, config: BrokerConfig, now_ms: int
    ) -> Result[None] | None:
        consequences = Consequences(state, config, sessions.suspects)
        records = tuple(_first(_unclean(consequences)))
        full = len(records) == MOST_RECORDS
        interval_ms = config.unclean_leader_election_interval_ms
        self.unclean_ms = now_ms + (AFTER_A_HIT_MS if full else interval_ms)
        if not records:
            return None
        return Result(records, None, tuple(consequences.reasons), atomic=False)


def _balance_interval_ms(config: BrokerConfig) -> int:
    return config.leader_imbalance_check_interval_seconds * 1000


def _first(records: Iterator[PartitionChangeRecord]) -> Iterator[MetadataRecord]:
    for count, record in enumerate(records, 1):
        yield record
        if count == MOST_RECORDS:
            return


def imbalanced(state: ClusterState, percentage: int) -> frozenset[int]:
    """Active brokers that lead too few of the partitions whose first replica they are."""
    return frozenset(
        broker_id
        for broker_id, keys in state.away.items()
        if len(keys) * 100 > percentage * state.preferred_count[broker_id]
        and is_active(state.image, broker_id)
    )


def _preferred(
    consequences: Consequences, brokers: frozenset[int]
) -> Iterator[PartitionChangeRecord]:
    state = consequences.state
    for broker_id in sorted(brokers):
        for key in state.away.get(broker_id, {}):
            record = prefer_first(*key, state.partition(key), consequences.rules(key))
            if record is not None:
                yield record


def _unclean(consequences: Consequences) -> Iterator[PartitionChangeRecord]:
    state = consequences.state
    for key in state.leaderless:
        if consequences.topic_config(state.topic_name(key)).unclean_leader_election_enable:
            record = _election(consequences, key)
            if record is not None:
                yield record


def _election(consequences: Consequences, key: PartitionKey) -> PartitionChangeRecord | None:
    """An unclean election of one partition, None while nobody can be elected."""
    partition = consequences.state.partition(key)
    record = change_isr(*key, partition, partition.isr, consequences.rules(key))
    if record is None or record.leader < 0:
        return None
    place = f"{consequences.state.topic_name(key)}-{key[1]}"
    because = "it had no leader, and unclean.leader.election.enable is true"
    details = {"partition": place}
    consequences.reasons.append(leader_reason(place, partition, record, because, details))
    return record
