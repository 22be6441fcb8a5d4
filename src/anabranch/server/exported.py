"""Every metric that a node exports, a sentence each: the documentation is made from it.

Names follow the JMX exporter's for Kafka where Kafka has the figure (a meter `XPerSec` is the
counter `x_total`, of which Prometheus makes the rate), and begin with `anabranch_` where not.

The rule it keeps: what is not in `METRICS` is not exported. Not here: where the figures come from
(`metrics`).
"""

from __future__ import annotations

from anabranch.core.metric import COUNTER, GAUGE, SUMMARY, Exported

DISKLESS: tuple[Exported, ...] = (
    Exported(
        "anabranch_diskless_stores_missing",
        GAUGE,
        "1 while this broker cannot use the coordinator or the object store, 0 otherwise.",
    ),
    Exported(
        "anabranch_diskless_put_seconds", SUMMARY, "Stored objects, and the time to store them."
    ),
    Exported("anabranch_diskless_put_bytes_total", COUNTER, "Bytes of objects that were stored."),
    Exported(
        "anabranch_diskless_puts_repeated_total",
        COUNTER,
        "Uploads that were started a second time because the first one was late.",
    ),
    Exported(
        "anabranch_diskless_commit_seconds",
        SUMMARY,
        "Committed objects, and the time to commit them.",
    ),
    Exported(
        "anabranch_diskless_batches_total", COUNTER, "Batches of objects that were committed."
    ),
    Exported(
        "anabranch_diskless_failed_objects_total",
        COUNTER,
        "Objects that were not stored after all attempts, or not committed.",
        ("step",),
    ),
    Exported(
        "anabranch_diskless_last_put_age_seconds",
        GAUGE,
        "Time since an object was last stored; absent before the first one.",
    ),
    Exported(
        "anabranch_diskless_last_commit_age_seconds",
        GAUGE,
        "Time since an object was last committed; absent before the first one.",
    ),
    Exported(
        "anabranch_diskless_watching",
        GAUGE,
        "1 while the node is notified of other brokers' commits.",
    ),
    Exported(
        "anabranch_diskless_waiting_bytes",
        GAUGE,
        "Bytes of diskless batches that are not committed yet.",
    ),
    Exported(
        "anabranch_diskless_cache_bytes", GAUGE, "Bytes of diskless records kept for readers."
    ),
    Exported(
        "anabranch_diskless_cache_hits_total",
        COUNTER,
        "Runs of batches that were read from the cache.",
    ),
    Exported(
        "anabranch_diskless_cache_misses_total",
        COUNTER,
        "Runs of batches that had to be read from the store.",
    ),
)

REMOTE: tuple[Exported, ...] = (
    Exported(
        "kafka_server_brokertopicmetrics_remotecopybytes_total",
        COUNTER,
        "Bytes of segments that were copied to the remote store.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotecopyrequests_total",
        COUNTER,
        "Segments that a leader here began to copy to the remote store.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotecopyerrors_total",
        COUNTER,
        "Copies of segments that failed, or were given up.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotecopylagbytes",
        GAUGE,
        "Bytes of closed segments that are not copied yet, of partitions led here.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotecopylagsegments",
        GAUGE,
        "Closed segments that are not copied yet, of partitions led here.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotefetchbytes_total",
        COUNTER,
        "Bytes of records and indexes that were read from the remote store.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotefetchrequests_total",
        COUNTER,
        "Reads of the remote store, for records and indexes.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotefetcherrors_total",
        COUNTER,
        "Reads of the remote store that failed, or found damaged data.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotedeleterequests_total",
        COUNTER,
        "Attempts to delete a segment from the remote store; topic is empty for deleted topics.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotedeleteerrors_total",
        COUNTER,
        "Of these, attempts that failed.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotedeletelagbytes",
        GAUGE,
        "Bytes of segments that are being deleted, of partitions led here.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotedeletelagsegments",
        GAUGE,
        "Segments that are being deleted, of partitions led here.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotelogmetadatacount",
        GAUGE,
        "Segments in any state that the coordinator knows, of partitions led here.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotelogsizebytes",
        GAUGE,
        "Bytes of segments in the remote store, of partitions led here.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_remotelogsizecomputationtime",
        GAUGE,
        "Milliseconds that the coordinator took to list the segments of a partition.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_buildremotelogauxstaterequests_total",
        COUNTER,
        "Number of times that a follower here began its log where the leader's local log begins.",
        ("topic",),
    ),
    Exported(
        "kafka_server_brokertopicmetrics_buildremotelogauxstateerrors_total",
        COUNTER,
        "Number of times that this failed.",
        ("topic",),
    ),
    Exported(
        "kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent",
        GAUGE,
        "Share of the last minute in which copier threads of remote logs were idle, of 1.",
    ),
    Exported(
        "kafka_log_remote_remotelogmanager_remotelogreaderfetchrateandtimems",
        SUMMARY,
        "Reads of the remote store, and the time that they took in ms.",
    ),
    Exported(
        "org_apache_kafka_storage_internals_log_remotestoragethreadpool_remotelogreadertaskqueuesize",
        GAUGE,
        "Reads of the remote store that wait for a reader thread.",
    ),
    Exported(
        "org_apache_kafka_storage_internals_log_remotestoragethreadpool_remotelogreaderavgidlepercent",
        GAUGE,
        "Share of the last minute in which reader threads of remote logs were idle, of 1.",
    ),
)

TRANSACTIONS: tuple[Exported, ...] = (
    Exported(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        GAUGE,
        "Markers that could not be written to a partition and are sent again.",
    ),
    Exported(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        GAUGE,
        "Partitions with a transaction that has been open 5 minutes longer than the longest "
        "timeout.",
    ),
    Exported(
        "kafka_server_replicamanager_produceridcount",
        GAUGE,
        "Producer ids in memory, counted for each partition hosted here.",
    ),
    Exported(
        "kafka_server_addpartitionstotxnmanager_verificationfailure_total",
        COUNTER,
        "Transactions that their coordinator did not confirm to a partition.",
    ),
    Exported("anabranch_transaction_ids", GAUGE, "Transactional ids that this node coordinates."),
    Exported("anabranch_transaction_ongoing", GAUGE, "Open transactions of these ids."),
    Exported(
        "anabranch_transaction_awaiting_markers",
        GAUGE,
        "Decided transactions whose markers are not yet in all partitions.",
    ),
    Exported(
        "anabranch_transaction_partitions_loading",
        GAUGE,
        "Partitions of __transaction_state that this node leads and is still loading.",
    ),
    Exported(
        "anabranch_transaction_markers_total", COUNTER, "Markers that were written to partitions."
    ),
    Exported(
        "anabranch_transaction_ended_total",
        COUNTER,
        "Transactions that ended here, by outcome.",
        ("decision",),
    ),
    Exported(
        "anabranch_transaction_timed_out_total",
        COUNTER,
        "Transactions that outlived their timeout and were aborted.",
    ),
    Exported(
        "anabranch_transaction_expired_ids_total",
        COUNTER,
        "Transactional ids that have expired.",
    ),
)

QUOTAS: tuple[Exported, ...] = (
    Exported(
        "kafka_server_produce_byte_rate",
        GAUGE,
        "Bytes a second that a user, client id or both, which has a quota, produced.",
        ("user", "client_id"),
    ),
    Exported(
        "kafka_server_produce_throttle_time",
        GAUGE,
        "Mean throttle time in milliseconds of the answers that had one during the last minute.",
        ("user", "client_id"),
    ),
    Exported(
        "kafka_server_fetch_byte_rate",
        GAUGE,
        "Bytes a second that a user, client id or both, which has a quota, fetched.",
        ("user", "client_id"),
    ),
    Exported(
        "kafka_server_fetch_throttle_time",
        GAUGE,
        "Mean throttle time in milliseconds of the answers that had one during the last minute.",
        ("user", "client_id"),
    ),
    Exported(
        "kafka_server_request_request_time",
        GAUGE,
        "Per cent of the loop's time that requests of a user, client id or both took.",
        ("user", "client_id"),
    ),
    Exported(
        "kafka_server_request_throttle_time",
        GAUGE,
        "Mean throttle time in milliseconds of the answers that had one during the last minute.",
        ("user", "client_id"),
    ),
    Exported(
        "kafka_server_controllermutation_tokens",
        GAUGE,
        "Partitions that may still be created or deleted at once; below 0 while throttled.",
        ("user", "client_id"),
    ),
    Exported(
        "kafka_server_controllermutation_throttle_time",
        GAUGE,
        "Mean throttle time in milliseconds of the answers that had one during the last minute.",
        ("user", "client_id"),
    ),
)

METRICS: tuple[Exported, ...] = (
    *DISKLESS,
    *QUOTAS,
    *REMOTE,
    *TRANSACTIONS,
    Exported(
        "kafka_controller_diskless_effective_rf",
        GAUGE,
        "Racks that have a replica of each partition of a diskless topic.",
        ("topic",),
    ),
    Exported(
        "kafka_controller_diskless_rack_state",
        GAUGE,
        "0 for a HEALTHY rack, 1 for a DEGRADED one, 2 for an UNAVAILABLE one.",
        ("rack",),
    ),
    Exported(
        "kafka_controller_diskless_rack_degraded_since_ms",
        GAUGE,
        "When a rack lost its last eligible broker, in ms since 1970; 0 while it has one.",
        ("rack",),
    ),
    Exported(
        "anabranch_diskless_rack_waited_percent",
        GAUGE,
        "Share of the threshold that a DEGRADED rack has waited; 0 for others.",
        ("rack",),
    ),
    Exported(
        "kafka_controller_diskless_reassignment_backlog",
        GAUGE,
        "Diskless partitions that the controller still has to check or change.",
    ),
    Exported(
        "kafka_controller_diskless_rack_coverage",
        GAUGE,
        "Percentage of racks with a replica. Above 10,000 partitions, only for those that are not "
        "steady.",
        ("topic", "partition"),
    ),
    Exported(
        "kafka_controller_diskless_placement_state",
        GAUGE,
        "0 steady, 1 reconciling, 2 frozen. Above 10,000 partitions, only for those that are not "
        "steady.",
        ("topic", "partition"),
    ),
    Exported(
        "kafka_controller_diskless_placement_drift",
        GAUGE,
        "1 if a partition does not have one replica in each rack. Above 10,000 partitions, only "
        "for those that are not steady.",
        ("topic", "partition"),
    ),
    Exported(
        "kafka_controller_diskless_exceptions",
        GAUGE,
        "1 while a rack has no capacity. Above 10,000 partitions, only for those that are not "
        "steady.",
        ("topic", "partition"),
    ),
    Exported(
        "kafka_broker_diskless_coordinator_lag",
        GAUGE,
        "Records that the coordinator has and this broker does not know. Above 10,000 partitions, "
        "only for those above 0.",
        ("topic", "partition"),
    ),
    Exported(
        "kafka_broker_diskless_cache_build_lag",
        GAUGE,
        "Records that the coordinator has after the newest one cached here. Above 10,000 "
        "partitions, only for those above 0.",
        ("topic", "partition"),
    ),
    Exported(
        "kafka_broker_diskless_preferred_broker_hit_ratio",
        GAUGE,
        "Share of the diskless partitions in produce and fetch requests of clients with a known "
        "rack that this broker served in that rack.",
        ("topic",),
    ),
    Exported(
        "anabranch_diskless_served_az_hit_total",
        COUNTER,
        "Diskless partitions in produce and fetch requests that were served in the client's rack.",
        ("topic",),
    ),
    Exported(
        "anabranch_diskless_served_az_miss_total",
        COUNTER,
        "Diskless partitions in produce and fetch requests that were served outside the client's "
        "rack.",
        ("topic",),
    ),
    Exported(
        "anabranch_diskless_served_az_unaware_total",
        COUNTER,
        "Diskless partitions in produce and fetch requests of clients whose rack is not known.",
        ("topic",),
    ),
    Exported(
        "anabranch_diskless_client_az_hit_total",
        COUNTER,
        "Diskless partitions in Metadata responses with a leader in the client's rack.",
        ("topic",),
    ),
    Exported(
        "anabranch_diskless_client_az_miss_total",
        COUNTER,
        "Diskless partitions in Metadata responses with a leader outside the client's rack.",
        ("topic",),
    ),
    Exported(
        "anabranch_diskless_client_az_unaware_total",
        COUNTER,
        "Diskless partitions in Metadata responses to clients whose rack is not known.",
        ("topic",),
    ),
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
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        COUNTER,
        "Batches of producers that were refused; topic is empty for topics that do not exist.",
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
        "Bytes of responses sent.",
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
        "kafka_network_socketserver_failedhandshakes_total",
        COUNTER,
        "TLS handshakes that failed; the log says why.",
        ("listener",),
    ),
    Exported(
        "kafka_network_socketserver_successfulauthentication_total",
        COUNTER,
        "Logins over SASL that were accepted.",
        ("listener",),
    ),
    Exported(
        "kafka_network_socketserver_failedauthentication_total",
        COUNTER,
        "Logins over SASL that were refused; the log says why.",
        ("listener",),
    ),
    Exported(
        "kafka_network_socketserver_hungup_total",
        COUNTER,
        "Connections that the node closed because of invalid input.",
        ("listener",),
    ),
    Exported(
        "kafka_network_socketserver_unsentbytes",
        GAUGE,
        "Bytes of responses that clients have not read yet.",
        ("listener",),
    ),
    Exported(
        "kafka_network_socketserver_memorypoolused",
        GAUGE,
        "Bytes of requests that wait to be run, limited by `queued.max.request.bytes`.",
    ),
    Exported(
        "kafka_server_delayedoperationpurgatory_size",
        GAUGE,
        "Requests that wait for records, acknowledgements or a timeout.",
        ("role",),
    ),
    Exported(
        "kafka_server_replicamanager_partitioncount", GAUGE, "Partitions that this node hosts."
    ),
    Exported("kafka_server_replicamanager_leadercount", GAUGE, "Partitions that this node leads."),
    Exported(
        "kafka_server_replicamanager_offlinereplicacount",
        GAUGE,
        "Partitions that this node should host but cannot.",
    ),
    Exported(
        "kafka_log_logmanager_offlinelogdirectorycount",
        GAUGE,
        "Folders of log.dirs that this node cannot use.",
    ),
    Exported(
        "anabranch_log_folder_full",
        GAUGE,
        "1 for a folder of log.dirs that has no space for records, else 0.",
        ("broker", "folder"),
    ),
    Exported(
        "kafka_server_replicamanager_underreplicatedpartitions",
        GAUGE,
        "Partitions led here with fewer in-sync replicas than replicas.",
    ),
    Exported(
        "kafka_server_replicamanager_underminisrpartitioncount",
        GAUGE,
        "Partitions led here with fewer in-sync replicas than min.insync.replicas.",
    ),
    Exported(
        "kafka_server_replicamanager_atminisrpartitioncount",
        GAUGE,
        "Partitions led here with exactly min.insync.replicas in sync.",
    ),
    Exported(
        "kafka_server_replicamanager_isrshrinks_total",
        COUNTER,
        "Number of times that a leader here removed a follower from the in-sync replicas.",
    ),
    Exported(
        "kafka_server_replicamanager_isrexpands_total",
        COUNTER,
        "Number of times that a leader here added a follower to the in-sync replicas.",
    ),
    Exported(
        "kafka_server_replicamanager_failedisrupdates_total",
        COUNTER,
        "Changes of in-sync replicas that a leader here requested and that failed.",
    ),
    Exported(
        "anabranch_replication_truncations_total",
        COUNTER,
        "Number of times that a follower here truncated records that its leader does not have.",
    ),
    Exported(
        "kafka_cluster_partition_underreplicated",
        GAUGE,
        "1 for a partition led here with fewer in-sync replicas than replicas, else 0.",
        ("topic", "partition"),
    ),
    Exported(
        "kafka_cluster_partition_insyncreplicascount",
        GAUGE,
        "In-sync replicas of a partition led here.",
        ("topic", "partition"),
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
        "Offset of a partition's next record.",
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
        "Largest dirty share of any log.",
    ),
    Exported(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        GAUGE,
        "Time since the last search for logs to compact.",
    ),
    Exported(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        GAUGE,
        "Partitions that are no longer compacted because a pass over them failed.",
    ),
    Exported(
        "kafka_log_logcleanermanager_uncleanable_bytes",
        GAUGE,
        "Bytes of the partitions that are no longer compacted.",
    ),
    Exported(
        "kafka_log_logcleaner_cleaner_recopy_percent",
        GAUGE,
        "Bytes written by the last compaction pass, as a percentage of those read.",
    ),
    Exported(
        "kafka_log_logcleaner_max_clean_time_secs",
        GAUGE,
        "Duration of the last compaction pass.",
    ),
    Exported(
        "anabranch_cleaner_passes_total", COUNTER, "Compaction passes since the node started."
    ),
    Exported("anabranch_cleaner_readbytes_total", COUNTER, "Bytes that compaction has read."),
    Exported("anabranch_cleaner_writtenbytes_total", COUNTER, "Bytes that compaction has written."),
    Exported(
        "anabranch_diskless_combining_age_seconds",
        GAUGE,
        "Time since this broker's last successful round of combining manifests, or its start.",
    ),
    Exported(
        "anabranch_diskless_manifests_deleted_total",
        COUNTER,
        "Manifests that this broker has deleted, because two checkpoints contain them.",
    ),
    Exported(
        "anabranch_diskless_garbage_age_seconds",
        GAUGE,
        "Time since the last successful round of diskless garbage collection of this broker.",
    ),
    Exported(
        "anabranch_diskless_garbage_waiting_objects",
        GAUGE,
        "Objects due for deletion at this broker's last step of garbage collection, up to 100,000.",
    ),
    Exported(
        "anabranch_diskless_garbage_deleted_total",
        COUNTER,
        "Diskless objects that this broker has deleted as garbage.",
    ),
    Exported(
        "anabranch_diskless_foreign_objects",
        GAUGE,
        "Objects of another coordinator's database in this broker's last listing of the store.",
    ),
    Exported(
        "anabranch_diskless_manifest_age_seconds",
        GAUGE,
        "Time since this broker stored a manifest.",
    ),
    Exported(
        "anabranch_diskless_unnoted_objects_total",
        COUNTER,
        "Objects in no manifest: the store refused manifests, or their offsets came too late.",
    ),
    Exported(
        "anabranch_diskless_tiering_lag_rows",
        GAUGE,
        "Rows of batches that are older than diskless.tiering.age.ms and are not tiered, in the "
        "partitions that this broker leads, up to 1,000 of each. Measured every 5 minutes.",
        ("topic",),
    ),
    Exported(
        "anabranch_diskless_tiering_lag_bytes",
        GAUGE,
        "Bytes of the batches in these rows.",
        ("topic",),
    ),
    Exported(
        "anabranch_diskless_tiering_lag_seconds",
        GAUGE,
        "How long the oldest segment that could be made has waited for a tiering job; absent where "
        "nothing was ever tiered.",
        ("topic",),
    ),
    Exported(
        "anabranch_diskless_compaction_lag_bytes",
        GAUGE,
        "Bytes of tiered segments that no pass of compaction has read yet and one may, in the "
        "partitions of compacted topics that this broker leads. Measured every 5 minutes.",
        ("topic",),
    ),
    Exported(
        "anabranch_diskless_compaction_lag_seconds",
        GAUGE,
        "How long the oldest such segment has waited where a pass is due by the topic's settings, "
        "else 0; absent where nothing was ever compacted.",
        ("topic",),
    ),
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
        "Rebalances since the node started.",
    ),
    Exported(
        "kafka_consumergroup_lag",
        GAUGE,
        "Records up to the high watermark behind the committed offset of a group that this node "
        "coordinates; the 10,000 offsets that are most behind.",
        ("consumergroup", "topic", "partition"),
    ),
    Exported(
        "kafka_consumergroup_current_offset",
        GAUGE,
        "The committed offset, for each series of kafka_consumergroup_lag.",
        ("consumergroup", "topic", "partition"),
    ),
    Exported(
        "anabranch_consumergroup_lag_left_out",
        GAUGE,
        "Committed offsets that have no series of kafka_consumergroup_lag because there are too "
        "many.",
    ),
    Exported(
        "anabranch_consumergroup_lag_unknown",
        GAUGE,
        "Committed offsets without a lag, because the partition's leader did not tell its log end.",
    ),
    Exported("anabranch_group_members", GAUGE, "Members of the groups that this node coordinates."),
    Exported(
        "anabranch_group_partitions_loading",
        GAUGE,
        "Partitions of __consumer_offsets that are still being loaded.",
    ),
    Exported(
        "kafka_server_brokermetadatametrics_lastappliedrecordoffset",
        GAUGE,
        "Offset of the last metadata record that this node applied.",
    ),
    Exported(
        "kafka_controller_kafkacontroller_activecontrollercount",
        GAUGE,
        "1 on the active controller, else 0.",
    ),
    Exported(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        GAUGE,
        "Partitions without a leader; only on the active controller.",
    ),
    Exported(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        GAUGE,
        "Partitions not led by their preferred replica; only on the active controller.",
    ),
    Exported(
        "anabranch_controller_missing_replicas",
        GAUGE,
        "Missing replicas; only on the active controller.",
    ),
    Exported(
        "anabranch_controller_rack_violations",
        GAUGE,
        "Partitions in fewer racks than possible, without those of topics that ignore racks; "
        "only on the active controller.",
    ),
    Exported(
        "kafka_controller_controllerstats_leaderelectionrateandtimems",
        SUMMARY,
        "Leaders elected by this controller, and milliseconds from decision to commit.",
    ),
    Exported(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        COUNTER,
        "Leaders elected by this controller that may lack acknowledged records.",
    ),
    Exported("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, "Topics of the cluster."),
    Exported(
        "kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, "Partitions of the cluster."
    ),
    Exported(
        "kafka_controller_kafkacontroller_activebrokercount",
        GAUGE,
        "Registered brokers that are not fenced.",
    ),
    Exported(
        "kafka_controller_kafkacontroller_fencedbrokercount",
        GAUGE,
        "Registered brokers that are fenced.",
    ),
    Exported(
        "anabranch_flush_rounds_total", COUNTER, "Rounds of fdatasync that requests waited for."
    ),
    Exported(
        "anabranch_cold_reads_total",
        COUNTER,
        "Reads from disk, outside the event loop.",
        ("role",),
    ),
    Exported(
        "anabranch_request_faults_total",
        COUNTER,
        "Requests that failed with an unexpected error; each is logged.",
        ("role",),
    ),
    Exported(
        "anabranch_own_faults_total",
        COUNTER,
        "Connections that the node closed for a reason of its own, and exceptions that it did not "
        "expect; each is logged, and a sound node has none.",
        ("kind",),
    ),
    Exported(
        "anabranch_settings_kept_back",
        GAUGE,
        "Listeners and ways to other nodes whose stored keys, trust or logins the node cannot use: "
        "it goes on with those of before, and logs why.",
    ),
    Exported(
        "anabranch_start_seconds", GAUGE, "Time from the start of the node until it served clients."
    ),
)
