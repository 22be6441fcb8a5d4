"""What a node tells Prometheus, gathered when it is asked and not counted on the data path.

What: `METRICS` is the list of everything that is exported, a sentence each (the documentation is
made from it); `NodeCollector` reads the node's figures into it. Names follow the JMX exporter's for
Kafka where Kafka has the figure, and begin with `anabranch_` where it has none.

Rule kept: a scrape never changes anything, and nothing is exported that is not in `METRICS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anabranch.core.groups.states import GroupState

if TYPE_CHECKING:
    from anabranch.server.dispatch import Dispatcher
    from anabranch.server.node import Node

COUNTER = "counter"
GAUGE = "gauge"


class Exported(NamedTuple):
    """One metric: a counter's name ends in `_total`."""

    name: str
    kind: str
    sentence: str
    labels: tuple[str, ...] = ()


METRICS: tuple[Exported, ...] = (
    Exported(
        "kafka_server_brokertopicmetrics_messagesin_total",
        COUNTER,
        "Records appended since the node started.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_bytesin_total",
        COUNTER,
        "Bytes of record batches appended since the node started.",
        ("topic",),
    ),
    Exported(
        "kafka_network_requestmetrics_requests_total",
        COUNTER,
        "Requests received.",
        ("role", "request", "version"),
    ),
    Exported(
        "kafka_network_requestmetrics_errors_total",
        COUNTER,
        "Requests whose handler failed with an exception.",
        ("role", "request", "version"),
    ),
    Exported(
        "kafka_network_socketserver_receivedbytes_total",
        COUNTER,
        "Bytes of requests received.",
        ("role",),
    ),
    Exported(
        "kafka_network_socketserver_sentbytes_total",
        COUNTER,
        "Bytes of answers handed to the network.",
        ("role",),
    ),
    Exported(
        "kafka_network_socketserver_connections", GAUGE, "Connections that are open.", ("listener",)
    ),
    Exported(
        "kafka_network_socketserver_accepted_total",
        COUNTER,
        "Connections that were accepted.",
        ("listener",),
    ),
    Exported(
        "kafka_network_socketserver_refused_total",
        COUNTER,
        "Connections that were refused because a limit was reached.",
        ("listener",),
    ),
    Exported(
        "kafka_network_socketserver_hungup_total",
        COUNTER,
        "Connections that the node closed because of what came on them.",
        ("listener",),
    ),
    Exported(
        "kafka_network_socketserver_unsentbytes",
        GAUGE,
        "Bytes of answers that clients have not taken yet.",
        ("listener",),
    ),
    Exported(
        "kafka_server_delayedoperationpurgatory_size",
        GAUGE,
        "Requests that wait for records, acknowledgements or time.",
        ("role",),
    ),
    Exported(
        "kafka_server_replicamanager_partitioncount", GAUGE, "Partitions that this node hosts."
    ),
    Exported("kafka_server_replicamanager_leadercount", GAUGE, "Partitions that this node leads."),
    Exported(
        "kafka_server_replicamanager_offlinereplicacount",
        GAUGE,
        "Partitions that this node should host and cannot.",
    ),
    Exported(
        "kafka_server_replicamanager_underminisrpartitioncount",
        GAUGE,
        "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
    ),
    Exported(
        "kafka_log_log_size", GAUGE, "Bytes of a partition's segments.", ("topic", "partition")
    ),
    Exported(
        "kafka_log_log_logstartoffset",
        GAUGE,
        "First offset that a partition holds.",
        ("topic", "partition"),
    ),
    Exported(
        "kafka_log_log_logendoffset",
        GAUGE,
        "Offset that a partition's next record gets.",
        ("topic", "partition"),
    ),
    Exported(
        "kafka_log_log_highwatermark",
        GAUGE,
        "Offset up to which consumers may read a partition.",
        ("topic", "partition"),
    ),
    Exported(
        "kafka_log_logcleanermanager_max_dirty_percent",
        GAUGE,
        "Dirty share of the log that needs compaction most.",
    ),
    Exported(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        GAUGE,
        "Time since it was last looked for logs to compact.",
    ),
    Exported(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        GAUGE,
        "Partitions that are not compacted any more because a pass over them failed.",
    ),
    Exported(
        "kafka_log_logcleanermanager_uncleanable_bytes",
        GAUGE,
        "Bytes of the partitions that are not compacted any more.",
    ),
    Exported(
        "kafka_log_logcleaner_cleaner_recopy_percent",
        GAUGE,
        "Bytes written by the last pass of compaction, in percent of those read.",
    ),
    Exported(
        "kafka_log_logcleaner_max_clean_time_secs",
        GAUGE,
        "How long the last pass of compaction took.",
    ),
    Exported(
        "anabranch_cleaner_passes_total", COUNTER, "Passes of compaction since the node started."
    ),
    Exported("anabranch_cleaner_readbytes_total", COUNTER, "Bytes that compaction has read."),
    Exported("anabranch_cleaner_writtenbytes_total", COUNTER, "Bytes that compaction has written."),
    Exported(
        "kafka_coordinator_group_groupmetadatamanager_numgroups",
        GAUGE,
        "Groups that this node coordinates.",
    ),
    Exported(
        "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        GAUGE,
        "Committed offsets of the groups that this node coordinates.",
    ),
    Exported(
        "kafka_coordinator_group_groupmetadatamanager_numgroupsbystate",
        GAUGE,
        "Groups that this node coordinates, by state.",
        ("state",),
    ),
    Exported(
        "kafka_coordinator_group_groupcoordinatormetrics_offsetcommitcount_total",
        COUNTER,
        "Offsets that groups have committed since the node started.",
    ),
    Exported(
        "kafka_coordinator_group_groupcoordinatormetrics_offsetexpiredcount_total",
        COUNTER,
        "Committed offsets that have expired since the node started.",
    ),
    Exported(
        "kafka_coordinator_group_groupcoordinatormetrics_rebalancecount_total",
        COUNTER,
        "Rebalances that were begun since the node started.",
    ),
    Exported("anabranch_group_members", GAUGE, "Members of the groups that this node coordinates."),
    Exported(
        "anabranch_group_partitions_loading",
        GAUGE,
        "Partitions of __consumer_offsets whose groups are still being read.",
    ),
    Exported(
        "kafka_server_brokermetadatametrics_lastappliedrecordoffset",
        GAUGE,
        "Offset of the last metadata record that this node applied.",
    ),
    Exported(
        "kafka_controller_kafkacontroller_activecontrollercount",
        GAUGE,
        "1 on the node that holds the controller's lease, 0 elsewhere.",
    ),
    Exported("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, "Topics of the cluster."),
    Exported(
        "kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, "Partitions of the cluster."
    ),
    Exported(
        "kafka_controller_kafkacontroller_activebrokercount",
        GAUGE,
        "Brokers that are registered and not fenced.",
    ),
    Exported(
        "kafka_controller_kafkacontroller_fencedbrokercount",
        GAUGE,
        "Brokers that are registered and fenced.",
    ),
    Exported(
        "anabranch_flush_rounds_total", COUNTER, "Rounds of fdatasync that requests waited for."
    ),
    Exported(
        "anabranch_cold_reads_total",
        COUNTER,
        "Reads that missed the page cache and left the event loop.",
        ("role",),
    ),
    Exported(
        "anabranch_request_faults_total",
        COUNTER,
        "Requests that met an error nobody expected; each has a line in the log.",
        ("role",),
    ),
    Exported(
        "anabranch_start_seconds", GAUGE, "Time from the start of the node until it served clients."
    ),
)

BY_NAME = {metric.name: metric for metric in METRICS}
Sample = tuple[str, tuple[str, ...], float]


class NodeCollector(Collector):
    """Reads one node when Prometheus asks."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._ends: dict[Any, int] = {}
        self._records: dict[str, int] = {}
        self._count_records()
        self._records = dict.fromkeys(self._records, 0)

    def describe(self) -> Iterable[Metric]:
        """Empty families of everything in METRICS."""
        return [family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Metric]:
        """The families with what holds now, those without a sample left out."""
        families: dict[str, Any] = {}
        for name, labels, value in self._samples():
            if name not in families:
                families[name] = family(BY_NAME[name])
            families[name].add_metric(labels, value)
        yield from families.values()

    def _samples(self) -> Iterator[Sample]:
        node = self._node
        yield "anabranch_start_seconds", (), node.started_seconds
        for acceptor in node.acceptors:
            yield from samples_of_listener(acceptor.name, acceptor.statistics())
        if node.controller_dispatcher is not None:
            yield from samples_of_dispatcher(node.controller_dispatcher)
        if node.controller is not None:
            active = float(bool(node.controller.controller.active))
            yield "kafka_controller_kafkacontroller_activecontrollercount", (), active
        if node.broker is not None:
            yield from samples_of_dispatcher(node.broker.dispatcher)
            yield "anabranch_flush_rounds_total", (), node.broker.flusher.rounds_total
            yield from self._samples_of_partitions()
            yield from samples_of_groups(node.broker.broker.groups.statistics())
            yield from samples_of_cleaner(node.broker.cleaner.statistics())
            yield from samples_of_image(node.broker.broker.image)

    def _replicas(self) -> list[Any]:
        broker = self._node.broker
        return [] if broker is None else list(broker.broker.partitions)

    def _count_records(self) -> None:
        for replica in self._replicas():
            place = replica.topic_id, replica.topic_partition
            end = replica.log.end_offset
            grown = max(0, end - self._ends.get(place, 0))
            self._ends[place] = end
            topic = replica.topic_partition.topic
            self._records[topic] = self._records.get(topic, 0) + grown

    def _samples_of_partitions(self) -> Iterator[Sample]:
        assert self._node.broker is not None
        replicas = self._replicas()
        leaders = [each for each in replicas if each.is_leader]
        under = sum(not each.enough_in_sync for each in leaders)
        offline = len(self._node.broker.broker.partitions.offline)
        prefix = "kafka_server_replicamanager_"
        yield prefix + "partitioncount", (), len(replicas)
        yield prefix + "leadercount", (), len(leaders)
        yield prefix + "offlinereplicacount", (), offline
        yield prefix + "underminisrpartitioncount", (), under
        self._count_records()
        for topic, count in self._records.items():
            yield "kafka_server_brokertopicmetrics_messagesin_total", (topic,), count
        appended: dict[str, int] = {}
        for replica in replicas:
            topic = replica.topic_partition.topic
            appended[topic] = appended.get(topic, 0) + replica.appended_bytes
            yield from samples_of_replica(replica)
        for topic, size in appended.items():
            yield "kafka_server_brokertopicmetrics_bytesin_total", (topic,), size


def samples_of_replica(replica: Any) -> Iterator[Sample]:
    """One partition's offsets and size."""
    labels = replica.topic_partition.topic, str(replica.topic_partition.partition)
    yield "kafka_log_log_size", labels, replica.log.size_bytes
    yield "kafka_log_log_logstartoffset", labels, replica.log.start_offset
    yield "kafka_log_log_logendoffset", labels, replica.log.end_offset
    yield "kafka_log_log_highwatermark", labels, replica.high_watermark


def samples_of_dispatcher(dispatcher: Dispatcher) -> Iterator[Sample]:
    """The requests of one role."""
    role = (dispatcher.role,)
    yield "kafka_network_socketserver_receivedbytes_total", role, dispatcher.received_bytes
    yield "kafka_network_socketserver_sentbytes_total", role, dispatcher.sent_bytes
    yield "kafka_server_delayedoperationpurgatory_size", role, len(dispatcher.purgatory)
    yield "anabranch_cold_reads_total", role, dispatcher.cold_reads_total
    yield "anabranch_request_faults_total", role, dispatcher.faults_total
    for route in dispatcher.routes:
        labels = dispatcher.role, route.name, str(route.version)
        yield "kafka_network_requestmetrics_requests_total", labels, route.requests
        yield "kafka_network_requestmetrics_errors_total", labels, route.failures


def samples_of_listener(name: str, counts: dict[str, Any]) -> Iterator[Sample]:
    """The connections of one listener."""
    prefix = "kafka_network_socketserver_"
    yield prefix + "connections", (name,), counts["connections"]
    yield prefix + "accepted_total", (name,), counts["accepted_total"]
    yield prefix + "refused_total", (name,), counts["refused_total"]
    yield prefix + "hungup_total", (name,), counts["bad_total"]
    yield prefix + "unsentbytes", (name,), counts["unsent_bytes"]


def samples_of_groups(counts: dict[str, int]) -> Iterator[Sample]:
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


def samples_of_cleaner(counts: dict[str, float]) -> Iterator[Sample]:
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
    return GaugeMetricFamily(metric.name, metric.sentence, labels=metric.labels)


def registry_of(node: Node) -> CollectorRegistry:
    """A registry of this node alone, with the process's own figures."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(node))
    ProcessCollector(registry=registry)
    return registry
