"""What a node tells Prometheus, gathered when it is asked and not counted on the data path.

What: `NodeCollector` reads the node's figures into the metrics that `exported` lists.

Rule kept: a scrape never changes anything, and nothing is exported that is not in `METRICS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from anabranch.core.broker.gate import Charge
from anabranch.core.controller.diskless.figures import Figures, figures
from anabranch.core.coordination.groups.classic.states import GroupState
from anabranch.core.metric import COUNTER, SUMMARY, Exported
from anabranch.server.clocks import steady_ms
from anabranch.server.exported import METRICS

if TYPE_CHECKING:
    from anabranch.core.api.metadata_view import Zones
    from anabranch.core.coordination.groups.lags import GroupLags
    from anabranch.core.diskless.lags import Lag
    from anabranch.core.node.requests import Requests
    from anabranch.core.quotas.client_quotas import Series
    from anabranch.core.replication.replica import Replica
    from anabranch.core.tiering.compaction_lag import DirtyTopic
    from anabranch.core.tiering.lag import TopicLag
    from anabranch.server.broker_statistics import BrokerStatistics
    from anabranch.server.observed_node import ObservedNode
    from anabranch.server.remote.remote_counts import RemoteStatistics

BY_NAME = {metric.name: metric for metric in METRICS}
REMOTE_TOTALS = (
    "copy_bytes", "copy_requests", "copy_errors", "fetch_bytes", "fetch_requests", "fetch_errors",
    "delete_requests", "delete_errors",
)  # fmt: skip
Sample = tuple[str, tuple[str, ...], Any]
"""Name, labels, value; of a summary the count and the sum."""


class NodeCollector(Collector):
    """Reads one node when Prometheus asks."""

    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._ends: dict[Any, int] = {}
        self._records: dict[str, int] = {}
        if node.broker is not None:
            self._count_records(node.broker.statistics().replicas)
        self._records = dict.fromkeys(self._records, 0)

    def describe(self) -> Iterable[Metric]:
        """Empty families of everything in METRICS."""
        return [family(metric) for metric in METRICS]

    def collect(self) -> Iterable[Metric]:
        """The families with what holds now, those without a sample left out."""
        return families_of(self.moment())

    def moment(self) -> list[Iterable[Sample]]:
        """What holds now. It is read at one go where nothing changes meanwhile; families may be
        made of it later and elsewhere, since what is still to be told is of what cannot change."""
        node = self._node
        counts = None if node.broker is None else node.broker.statistics()
        parts: list[Iterable[Sample]] = [list(self._samples(counts))]
        if node.controller is not None and node.controller.controller.active:
            found = figures(node.controller.controller, steady_ms())
            parts.append(samples_of_managed_placement(found))
        if counts is not None:
            parts.append(samples_of_lags(counts.diskless_lags))
            parts.append(samples_of_tiering(counts.tiering_lags))
            parts.append(samples_of_compaction(counts.compaction_lags))
            parts.append(samples_of_group_lags(counts.group_lags))
        return parts

    def _samples(self, counts: BrokerStatistics | None) -> Iterator[Sample]:
        node = self._node
        yield "anabranch_start_seconds", (), node.started_seconds
        for kind, count in node.own_faults.counts.items():
            yield "anabranch_own_faults_total", (kind,), count
        yield "anabranch_settings_kept_back", (), node.changed.kept_back
        for acceptor in node.acceptors:
            yield from samples_of_listener(acceptor.name, acceptor.statistics())
        yield "kafka_network_socketserver_memorypoolused", (), node.memory.held_bytes
        if node.controller_serving is not None:
            yield from samples_of_requests(node.controller_serving.requests)
        if node.controller is not None:
            yield from samples_of_controller(node.controller.statistics())
            quotas = node.controller.controller.client_quotas
            found = quotas.series(steady_ms())
            yield from samples_of_quotas(each for each in found if each.charge is Charge.MUTATION)
        if node.broker is not None and counts is not None:
            yield from samples_of_requests(node.broker.serving.requests)
            yield "anabranch_flush_rounds_total", (), counts.flush_rounds
            yield from self._samples_of_partitions(counts)
            yield from samples_of_replication(counts)
            yield from samples_of_groups(counts.groups)
            yield from samples_of_transactions(counts.transactions)
            yield from samples_of_cleaner(counts.cleaner)
            yield from samples_of_diskless(counts.diskless)
            for name, value in counts.diskless_upkeep.items():
                yield f"anabranch_diskless_{name}", (), value
            yield from samples_of_quotas(counts.quotas)
            yield from samples_of_remote_logs(counts.remote, counts.replicas)
            yield from samples_of_image(counts.image)
            yield from samples_of_zones(counts.zones, counts.served)

    def _count_records(self, replicas: Iterable[Replica]) -> None:
        """Of the topics that are here: those that went take no memory, and have no series."""
        ends: dict[Any, int] = {}
        records: dict[str, int] = {}
        for replica in replicas:
            place = replica.topic_id, replica.topic_partition
            end = replica.log.end_offset
            grown = max(0, end - self._ends.get(place, 0))
            ends[place] = end
            topic = replica.topic_partition.topic
            known = records.get(topic)
            records[topic] = grown + (self._records.get(topic, 0) if known is None else known)
        self._ends, self._records = ends, records

    def _samples_of_partitions(self, counts: BrokerStatistics) -> Iterator[Sample]:
        replicas = counts.replicas
        leaders = [each for each in replicas if each.is_leader]
        prefix = "kafka_server_replicamanager_"
        yield prefix + "partitioncount", (), len(replicas)
        yield prefix + "leadercount", (), len(leaders)
        yield prefix + "offlinereplicacount", (), counts.offline_replicas
        yield "kafka_log_logmanager_offlinelogdirectorycount", (), counts.offline_folders
        for path, is_full in counts.folders_full.items():
            yield "anabranch_log_folder_full", (str(counts.broker_id), path), int(is_full)
        yield from samples_of_leaders(leaders)
        self._count_records(replicas)
        for topic, count in self._records.items():
            yield "kafka_server_brokertopicmetrics_messagesin_total", (topic,), count
        appended: dict[str, int] = {}
        for replica in replicas:
            topic = replica.topic_partition.topic
            appended[topic] = appended.get(topic, 0) + replica.appended_bytes
            yield from samples_of_replica(replica)
        for topic, size in appended.items():
            yield "kafka_server_brokertopicmetrics_bytesin_total", (topic,), size


def samples_of_diskless(counts: Mapping[str, float]) -> Iterator[Sample]:
    """The data path of diskless topics, where there is one."""
    if not counts:
        return
    prefix = "anabranch_diskless_"
    yield prefix + "stores_missing", (), counts["stores_missing"]
    if len(counts) == 1:
        return
    for step in ("put", "commit"):
        seconds = counts[f"{step}_ms"] / 1000
        yield f"{prefix}{step}_seconds", (), (counts[f"{step}s"], seconds)
        if counts[f"last_{step}_age_ms"] >= 0:
            age_seconds = counts[f"last_{step}_age_ms"] / 1000
            yield f"{prefix}last_{step}_age_seconds", (), age_seconds
    yield prefix + "put_bytes_total", (), counts["put_bytes"]
    yield prefix + "puts_repeated_total", (), counts["puts_repeated"]
    yield prefix + "batches_total", (), counts["batches"]
    yield prefix + "failed_objects_total", ("put",), counts["failed"]
    yield prefix + "failed_objects_total", ("commit",), counts["refused"]
    yield prefix + "watching", (), counts["watching"]
    yield prefix + "waiting_bytes", (), counts["waiting_bytes"]
    yield prefix + "cache_bytes", (), counts["cache_bytes"]
    yield prefix + "cache_hits_total", (), counts["cache_hits"]
    yield prefix + "cache_misses_total", (), counts["cache_misses"]


def samples_of_remote_logs(
    found: RemoteStatistics | None, replicas: Iterable[Replica]
) -> Iterator[Sample]:
    """The remote logs of classic topics, where there are any."""
    if found is None:
        return
    prefix = "kafka_server_brokertopicmetrics_"
    topics = {each.topic_partition.topic for each in replicas if each.log.config.has_remote}
    for topic in sorted(topics | found.totals.keys()):
        counts = found.totals.get(topic, {})
        for what in REMOTE_TOTALS:
            yield f"{prefix}remote{what.replace('_', '')}_total", (topic,), counts.get(what, 0)
    for topic, sizes in found.sizes.items():
        yield prefix + "remotecopylagbytes", (topic,), sizes.copy_lag.byte_size
        yield prefix + "remotecopylagsegments", (topic,), sizes.copy_lag.segments
        yield prefix + "remotedeletelagbytes", (topic,), sizes.delete_lag.byte_size
        yield prefix + "remotedeletelagsegments", (topic,), sizes.delete_lag.segments
        yield prefix + "remotelogmetadatacount", (topic,), sizes.segments
        yield prefix + "remotelogsizebytes", (topic,), sizes.byte_size
        yield prefix + "remotelogsizecomputationtime", (topic,), sizes.computation_ms
    began, failed = Counter[str](), Counter[str]()
    for each in replicas:
        if each.log.config.has_remote:
            began[each.topic_partition.topic] += each.began_remotely
            failed[each.topic_partition.topic] += each.failed_remotely
    for topic in began:
        yield prefix + "buildremotelogauxstaterequests_total", (topic,), began[topic]
        yield prefix + "buildremotelogauxstateerrors_total", (topic,), failed[topic]
    prefix = "kafka_log_remote_remotelogmanager_remotelog"
    yield prefix + "managertasksavgidlepercent", (), found.idle_share
    yield prefix + "readerfetchrateandtimems", (), (found.reads, found.read_ms)
    prefix = "org_apache_kafka_storage_internals_log_remotestoragethreadpool_remotelogreader"
    yield prefix + "taskqueuesize", (), found.waiting_reads
    yield prefix + "avgidlepercent", (), found.reader_idle_share


def samples_of_leaders(leaders: list[Any]) -> Iterator[Sample]:
    """How whole the partitions are that are led here."""
    under = below = at = 0
    for replica in leaders:
        in_sync, required = len(replica.in_sync_replicas), replica.required_in_sync
        missing = in_sync < len(replica.replicas) + replica.missing
        under += missing
        below += in_sync < required
        at += in_sync == required
        labels = replica.topic_partition.topic, str(replica.topic_partition.partition)
        yield "kafka_cluster_partition_underreplicated", labels, int(missing)
        yield "kafka_cluster_partition_insyncreplicascount", labels, in_sync
    prefix = "kafka_server_replicamanager_"
    yield prefix + "underreplicatedpartitions", (), under
    yield prefix + "underminisrpartitioncount", (), below
    yield prefix + "atminisrpartitioncount", (), at


def samples_of_replication(broker: BrokerStatistics) -> Iterator[Sample]:
    """What leaders here did to their in-sync replicas, and what they refused to producers."""
    counts = broker.replication
    prefix = "kafka_server_replicamanager_"
    yield prefix + "isrshrinks_total", (), counts["isr_shrinks"]
    yield prefix + "isrexpands_total", (), counts["isr_expands"]
    yield prefix + "failedisrupdates_total", (), counts["isr_failures"]
    yield "anabranch_replication_truncations_total", (), counts["truncations"]
    led = {each.topic_partition.topic for each in broker.replicas if each.is_leader}
    for topic in sorted(led | broker.failed_produces.keys()):
        count = broker.failed_produces.get(topic, 0)
        yield "kafka_server_brokertopicmetrics_failedproducerequests_total", (topic,), count


def samples_of_controller(counts: dict[str, int]) -> Iterator[Sample]:
    """What this node's controller decided; what it knows about partitions while it is active."""
    prefix = "kafka_controller_kafkacontroller_"
    yield prefix + "activecontrollercount", (), counts["active"]
    if counts["active"]:
        yield prefix + "offlinepartitionscount", (), counts["leaderless_partitions"]
        yield prefix + "preferredreplicaimbalancecount", (), counts["not_led_by_preferred"]
        yield "anabranch_controller_missing_replicas", (), counts["missing_replicas"]
        yield "anabranch_controller_rack_violations", (), counts["rack_violations"]
    prefix = "kafka_controller_controllerstats_"
    elections = counts["elections_total"], counts["elections_ms_total"]
    yield prefix + "leaderelectionrateandtimems", (), elections
    yield prefix + "uncleanleaderelections_total", (), counts["unclean_elections_total"]


def samples_of_lags(lags: Iterable[Lag]) -> Iterator[Sample]:
    """How far behind the coordinator this broker is."""
    for each in lags:
        labels = each.topic, str(each.partition)
        yield "kafka_broker_diskless_coordinator_lag", labels, each.coordinator_lag
        yield "kafka_broker_diskless_cache_build_lag", labels, each.cache_build_lag


def samples_of_tiering(lags: Iterable[TopicLag]) -> Iterator[Sample]:
    """How far the tiering of diskless topics is behind."""
    prefix = "anabranch_diskless_tiering_lag_"
    for each in lags:
        yield prefix + "rows", (each.topic,), each.rows
        yield prefix + "bytes", (each.topic,), each.byte_size
        if each.waited_ms >= 0:
            yield prefix + "seconds", (each.topic,), each.waited_ms / 1000


def samples_of_compaction(lags: Iterable[DirtyTopic]) -> Iterator[Sample]:
    """How far the compaction of diskless topics is behind."""
    prefix = "anabranch_diskless_compaction_lag_"
    for each in lags:
        yield prefix + "bytes", (each.topic,), each.byte_size
        if each.waited_ms >= 0:
            yield prefix + "seconds", (each.topic,), each.waited_ms / 1000


USED = {
    Charge.PRODUCE: ("produce", "byte_rate"),
    Charge.FETCH: ("fetch", "byte_rate"),
    Charge.REQUEST: ("request", "request_time"),
    Charge.MUTATION: ("controllermutation", "tokens"),
}
"""Kafka's names of a quota and of what was used of it."""


def samples_of_quotas(found: Iterable[Series]) -> Iterator[Sample]:
    """What clients used of their quotas, and how long they were told to rest."""
    for each in found:
        of_type, used = USED[each.charge]
        labels = each.user, each.client_id
        yield f"kafka_server_{of_type}_{used}", labels, each.used
        yield f"kafka_server_{of_type}_throttle_time", labels, each.throttle_time_ms


def samples_of_group_lags(found: GroupLags) -> Iterator[Sample]:
    """How far the groups that this node coordinates are behind, as kafka_exporter names it."""
    for each in found.shown:
        labels = each.group, each.topic, str(each.partition)
        yield "kafka_consumergroup_current_offset", labels, each.offset
        yield "kafka_consumergroup_lag", labels, each.lag
    yield "anabranch_consumergroup_lag_left_out", (), found.left_out
    yield "anabranch_consumergroup_lag_unknown", (), found.unknown


def samples_of_managed_placement(found: Figures) -> Iterator[Sample]:
    """What the active controller knows about the racks and replicas of diskless partitions."""
    prefix = "kafka_controller_diskless_"
    if found.topics:
        yield prefix + "reassignment_backlog", (), found.reassignment_backlog
    for topic in found.topics:
        yield prefix + "effective_rf", (topic,), found.effective_rf
    for rack in found.racks:
        yield prefix + "rack_state", (rack.name,), int(rack.state)
        yield prefix + "rack_degraded_since_ms", (rack.name,), rack.degraded_since_ms
        yield "anabranch_diskless_rack_waited_percent", (rack.name,), rack.waited_percent
    for each in found.partitions:
        labels = each.topic, str(each.partition)
        yield prefix + "rack_coverage", labels, each.rack_coverage
        yield prefix + "placement_state", labels, each.placement_state
        yield prefix + "placement_drift", labels, each.placement_drift
        yield prefix + "exceptions", labels, each.exceptions


def samples_of_zones(told: Zones, served: Zones) -> Iterator[Sample]:
    """Whom clients of diskless topics are told of, and who serves them."""
    for topic in sorted(served.hits.keys() | served.misses.keys()):
        hits, aware = served.hits[topic], served.hits[topic] + served.misses[topic]
        yield "kafka_broker_diskless_preferred_broker_hit_ratio", (topic,), hits / max(aware, 1)
    for name, zones in (("client", told), ("served", served)):
        prefix = f"anabranch_diskless_{name}_az_"
        for topic in sorted(zones.hits.keys() | zones.misses.keys()):
            yield prefix + "hit_total", (topic,), zones.hits[topic]
            yield prefix + "miss_total", (topic,), zones.misses[topic]
        for topic in sorted(zones.unaware):
            yield prefix + "unaware_total", (topic,), zones.unaware[topic]


def samples_of_replica(replica: Any) -> Iterator[Sample]:
    """One partition's offsets and size."""
    labels = replica.topic_partition.topic, str(replica.topic_partition.partition)
    yield "kafka_log_log_size", labels, replica.log.size_bytes
    yield "kafka_log_log_logstartoffset", labels, replica.log.start_offset
    yield "kafka_log_log_logendoffset", labels, replica.log.end_offset
    yield "kafka_log_log_highwatermark", labels, replica.high_watermark


def samples_of_requests(requests: Requests) -> Iterator[Sample]:
    """The requests of one role."""
    role = (requests.role,)
    yield "kafka_network_socketserver_receivedbytes_total", role, requests.received_bytes
    yield "kafka_network_socketserver_sentbytes_total", role, requests.sent_bytes
    yield "kafka_server_delayedoperationpurgatory_size", role, len(requests.purgatory)
    yield "anabranch_cold_reads_total", role, requests.cold_reads_total
    yield "anabranch_request_faults_total", role, requests.faults_total
    for route in requests.routes:
        labels = requests.role, route.name, str(route.version)
        yield "kafka_network_requestmetrics_requests_total", labels, route.requests
        yield "kafka_network_requestmetrics_errors_total", labels, route.failures


def samples_of_listener(name: str, counts: dict[str, Any]) -> Iterator[Sample]:
    """The connections of one listener."""
    prefix = "kafka_network_socketserver_"
    yield prefix + "connections", (name,), counts["connections"]
    yield prefix + "accepted_total", (name,), counts["accepted_total"]
    yield prefix + "refused_total", (name,), counts["refused_total"]
    yield prefix + "hungup_total", (name,), counts["bad_total"]
    yield prefix + "failedhandshakes_total", (name,), counts["failed_handshakes_total"]
    yield prefix + "successfulauthentication_total", (name,), counts["logins_total"]
    yield prefix + "failedauthentication_total", (name,), counts["failed_logins_total"]
    yield prefix + "unsentbytes", (name,), counts["unsent_bytes"]


def samples_of_groups(counts: Mapping[str, int]) -> Iterator[Sample]:
    """What this node coordinates."""
    prefix = "kafka_coordinator_group_"
    yield prefix + "groupmetadatamanager_numgroups", (), counts["groups"]
    yield prefix + "groupmetadatamanager_numoffsets", (), counts["offsets"]
    for state in GroupState:
        count = counts.get(f"groups_{state.name.lower()}", 0)
        yield prefix + "groupmetadatamanager_numgroupsbystate", (state.value,), count
    totals = prefix + "groupcoordinatormetrics_"
    yield totals + "offsetcommitcount_total", (), counts["commits_total"]
    yield totals + "offsetexpiredcount_total", (), counts["expired_offsets_total"]
    yield totals + "rebalancecount_total", (), counts["rebalances_total"]
    yield "anabranch_group_members", (), counts["members"]
    yield "anabranch_group_partitions_loading", (), counts["loading"]


def samples_of_transactions(counts: Mapping[str, int]) -> Iterator[Sample]:
    """What this node coordinates, and what its partitions know of transactions."""
    prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    yield prefix + "unknowndestinationqueuesize", (), counts["asked_again"]
    prefix = "kafka_server_replicamanager_"
    yield prefix + "partitionswithlatetransactionscount", (), counts["late_partitions"]
    yield prefix + "produceridcount", (), counts["producer_ids"]
    prefix = "kafka_server_addpartitionstotxnmanager_"
    yield prefix + "verificationfailure_total", (), counts["verification_failures_total"]
    prefix = "anabranch_transaction_"
    yield prefix + "ids", (), counts["transactional_ids"]
    yield prefix + "ongoing", (), counts["ongoing"]
    yield prefix + "awaiting_markers", (), counts["awaiting_markers"]
    yield prefix + "partitions_loading", (), counts["loading"]
    yield prefix + "markers_total", (), counts["markers_total"]
    yield prefix + "ended_total", ("commit",), counts["commits_total"]
    yield prefix + "ended_total", ("abort",), counts["aborts_total"]
    yield prefix + "timed_out_total", (), counts["timed_out_total"]
    yield prefix + "expired_ids_total", (), counts["expired_total"]


def samples_of_cleaner(counts: Mapping[str, float]) -> Iterator[Sample]:
    """What compaction does, and what it cannot."""
    prefix = "kafka_log_logcleanermanager_"
    yield prefix + "max_dirty_percent", (), counts["max_dirty_percent"]
    yield prefix + "time_since_last_run_ms", (), counts["since_last_look_ms"]
    yield prefix + "uncleanable_partitions_count", (), counts["uncleanable"]
    yield prefix + "uncleanable_bytes", (), counts["uncleanable_bytes"]
    yield "kafka_log_logcleaner_cleaner_recopy_percent", (), counts["recopy_percent"]
    yield "kafka_log_logcleaner_max_clean_time_secs", (), counts["pass_seconds"]
    yield "anabranch_cleaner_passes_total", (), counts["passes_total"]
    yield "anabranch_cleaner_readbytes_total", (), counts["read_bytes_total"]
    yield "anabranch_cleaner_writtenbytes_total", (), counts["written_bytes_total"]


def samples_of_image(image: Any) -> Iterator[Sample]:
    """What the metadata says about the cluster."""
    prefix = "kafka_controller_kafkacontroller_"
    topics = image.topics_by_id
    fenced = sum(broker.fenced for broker in image.brokers.values())
    partitions = sum(len(topic.partitions) for topic in topics.values())
    yield "kafka_server_brokermetadatametrics_lastappliedrecordoffset", (), image.offset
    yield prefix + "globaltopiccount", (), len(topics)
    yield prefix + "globalpartitioncount", (), partitions
    yield prefix + "fencedbrokercount", (), fenced
    yield prefix + "activebrokercount", (), len(image.brokers) - fenced


def family(metric: Exported) -> Any:
    """An empty family of prometheus_client."""
    if metric.kind == COUNTER:
        name = metric.name.removesuffix("_total")
        return CounterMetricFamily(name, metric.sentence, labels=metric.labels)
    if metric.kind == SUMMARY:
        return SummaryMetricFamily(metric.name, metric.sentence, labels=metric.labels)
    return GaugeMetricFamily(metric.name, metric.sentence, labels=metric.labels)


def families_of(parts: Iterable[Iterable[Sample]]) -> Iterable[Metric]:
    """The families of samples."""
    families: dict[str, Any] = {}
    for name, labels, value in chain.from_iterable(parts):
        if name not in families:
            families[name] = family(BY_NAME[name])
        values = value if isinstance(value, tuple) else (value,)
        families[name].add_metric(labels, *values)
    return families.values()


class Page(Collector):
    """Families of one moment of a node, and the process's own figures, which may be read at any
    time. Making them takes most of the time, and is for a thread."""

    def __init__(self, moment: Iterable[Iterable[Sample]]) -> None:
        self._moment = moment

    def collect(self) -> Iterator[Metric]:
        """To be called once."""
        yield from families_of(self._moment)
        yield from ProcessCollector(registry=None).collect()
