"""What a node's broker role counts, gathered when it is asked: for metrics and for tests.

Rule kept: who reads figures needs none of the role's parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from anabranch.core.api.context import Broker
    from anabranch.core.api.metadata_view import Zones
    from anabranch.core.coordination.groups.lags import GroupLags
    from anabranch.core.diskless.lags import Lag
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.quotas.client_quotas import Series
    from anabranch.core.replication.replica import Replica
    from anabranch.core.tiering.compaction_lag import DirtyTopic
    from anabranch.core.tiering.lag import TopicLag
    from anabranch.server.remote.remote_counts import RemoteStatistics


LATE_MS = 5 * 60_000
"""How much longer than any transaction may be one lasts that counts as late: as in Kafka."""


class BrokerStatistics(NamedTuple):
    """One look at a broker."""

    broker_id: int
    replicas: Sequence[Replica]
    """Those hosted here, whose folders work."""
    offline_replicas: int
    offline_folders: int
    folders_full: Mapping[str, bool]
    """Path of each folder that is open -> whether it takes no records for want of room."""
    failed_produces: Mapping[str, int]
    replication: Mapping[str, int]
    groups: Mapping[str, int]
    group_lags: GroupLags
    """As they were when metrics were last asked for."""
    transactions: Mapping[str, int]
    cleaner: Mapping[str, float]
    diskless_upkeep: Mapping[str, float]
    """Of manifests and garbage; empty where there are none."""
    flush_rounds: int
    diskless: Mapping[str, float]
    """Empty where diskless topics are off."""
    diskless_lags: Iterable[Lag]
    """How far behind the coordinator this broker is."""
    tiering_lags: Iterable[TopicLag]
    """How far tiering is behind."""
    compaction_lags: Iterable[DirtyTopic]
    """How far compaction of diskless topics is behind."""
    remote: RemoteStatistics | None
    """None where remote logs are off, or cannot be used yet."""
    image: MetadataImage
    quotas: Sequence[Series]
    """What clients with a quota used."""
    zones: Zones
    """Whom clients of diskless topics were shown."""
    served: Zones
    """In which racks those clients are that were served."""


def transaction_counts(broker: Broker, replicas: Iterable[Replica], now_ms: int) -> dict[str, int]:
    """What a broker coordinates, and what its partitions know of transactions."""
    before_ms = now_ms - broker.config.transaction_max_timeout_ms - LATE_MS
    known = [replica.log.producers for replica in replicas]
    return {
        **broker.transactions.statistics(),
        "verification_failures_total": broker.verifier.failures_total,
        "producer_ids": sum(map(len, known)),
        "late_partitions": sum(each.is_late(before_ms) for each in known),
    }
