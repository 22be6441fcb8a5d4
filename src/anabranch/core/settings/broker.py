"""The settings of one broker as they are in effect: file and command line, then dynamic changes.

Every setting is a plain attribute (`message.max.bytes` is `message_max_bytes`), found in the
instance's own dictionary, so that hot paths pay one look-up. The annotations below are the settings
in force that code reads by name; a test keeps them equal to what is read.

The rule it keeps: a configuration never changes; a dynamic change (KIP-226) makes a new one. Order
of precedence as Kafka's: this broker's dynamic value, the cluster's, the file's, the default. A
dynamic value that does not parse is left out and named in `ignored`, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from anabranch.core.settings.catalogue import BROKER_SETTINGS
from anabranch.core.settings.setting import ConfigFault, Scope, Value, parse


class BrokerConfig:
    """Effective values of one broker.

    The texts by origin are kept in `static`, `dynamic_broker` and `dynamic_default`.
    """

    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    advertised_listeners: str | None
    allow_everyone_if_no_acl_found: bool
    authorizer_class_name: str
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    broker_heartbeat_interval_ms: int
    broker_id: int
    broker_rack: str | None
    broker_session_timeout_ms: int
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    connections_max_idle_ms: int
    controller_listener_names: str | None
    controller_quorum_bootstrap_servers: tuple[str, ...]
    controller_quorum_voters: tuple[str, ...]
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    controller_socket_timeout_ms: int
    cordoned_log_dirs: tuple[str, ...]
    default_replication_factor: int
    delegation_token_expiry_check_interval_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_max_lifetime_ms: int
    delegation_token_secret_key: str | None
    delete_topic_enable: bool
    diskless_client_az_listener_map: tuple[str, ...]
    diskless_coordinator_url: str
    diskless_fetch_cache_max_bytes: int
    diskless_managed_rf_auto_reconcile: bool
    diskless_managed_rf_max_moves_per_sec: int
    diskless_managed_rf_rack_unavailable_threshold_ms: int
    diskless_produce_buffer_max_bytes: int
    diskless_produce_commit_interval_ms: int | None
    diskless_producer_id_expiration_ms: int
    diskless_storage_system_enable: bool
    diskless_storage_url: str
    enable_under_replicated_topic_creation: bool
    fetch_max_bytes: int
    follower_replication_throttled_rate: int
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    http_listener: str
    http_security_protocol: str
    http_tokens_file: str
    ignore_rack_assignment: bool
    initial_broker_registration_timeout_ms: int
    inter_broker_listener_name: str | None
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    leader_replication_throttled_rate: int
    listener_plaintext_beyond_loopback_allow: bool
    listener_security_protocol_map: str
    listener_unauthenticated_beyond_loopback_allow: bool
    listeners: str
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_threads: int
    log_cleanup_policy: tuple[str, ...]
    log_dir: str
    log_dir_failure_timeout_ms: int
    log_dirs: str | None
    log_diskless_enable: bool
    log_flush_interval_messages: int
    log_flush_interval_ms: int | None
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_index_interval_bytes: int
    log_index_size_max_bytes: int
    log_message_timestamp_after_max_ms: int
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_type: str
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_retention_hours: int
    log_retention_minutes: int | None
    log_retention_ms: int | None
    log_roll_hours: int
    log_roll_jitter_hours: int
    log_roll_jitter_ms: int | None
    log_roll_ms: int | None
    log_segment_bytes: int
    log_segment_delete_delay_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    message_max_bytes: int
    metadata_log_dir: str | None
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_store_url: str
    min_insync_replicas: int
    node_id: int | None
    num_partitions: int
    num_replica_fetchers: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    process_roles: tuple[str, ...] | None
    producer_id_expiration_ms: int
    queued_max_request_bytes: int
    quota_window_num: int
    quota_window_size_seconds: int
    remote_fetch_max_wait_ms: int
    remote_log_index_file_cache_total_size_bytes: int
    remote_log_manager_copier_thread_pool_size: int
    remote_log_manager_copy_max_bytes_per_second: int
    remote_log_manager_fetch_max_bytes_per_second: int
    remote_log_manager_task_interval_ms: int
    remote_log_reader_threads: int
    remote_log_storage_system_enable: bool
    remote_storage_url: str
    replica_alter_log_dirs_io_max_bytes_per_second: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_receive_buffer_bytes: int
    replica_socket_timeout_ms: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    request_timeout_ms: int
    sasl_server_max_receive_size: int
    security_inter_broker_protocol: str
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    super_users: str
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int
    unclean_leader_election_enable: bool
    unclean_leader_election_interval_ms: int

    static: Mapping[str, str]
    dynamic_broker: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    ignored: tuple[str, ...]

    def __init__(
        self,
        static: Mapping[str, str],
        dynamic_broker: Mapping[str, str],
        dynamic_default: Mapping[str, str],
    ) -> None:
        self.static = static
        self.dynamic_broker = dynamic_broker
        self.dynamic_default = dynamic_default
        values = self.__dict__
        values.update(_defaults())
        values.update(_parsed(static))
        ignored = _take_dynamic(values, dynamic_default, allowed=(Scope.CLUSTER_WIDE,))
        ignored += _take_dynamic(
            values, dynamic_broker, allowed=(Scope.CLUSTER_WIDE, Scope.PER_BROKER)
        )
        self.ignored = tuple(ignored)

    @classmethod
    def of(
        cls,
        static: Mapping[str, str] | None = None,
        *,
        dynamic_broker: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
    ) -> BrokerConfig:
        """A configuration from texts by name; names that are not settings are left alone.

        Raises ConfigFault for a static value that Kafka would refuse.
        """
        return cls(static or {}, dynamic_broker or {}, dynamic_default or {})

    def with_dynamic(
        self, dynamic_broker: Mapping[str, str], dynamic_default: Mapping[str, str]
    ) -> BrokerConfig:
        """The same file and command line under other dynamic values (KIP-226)."""
        return BrokerConfig(self.static, dynamic_broker, dynamic_default)

    def __getitem__(self, name: str) -> Value:
        """The effective value of a setting by Kafka's name; KeyError when there is none."""
        value: Value = self.__dict__[BROKER_SETTINGS[name].attribute]
        return value


@cache
def _defaults() -> dict[str, Any]:
    return {
        setting.attribute: None if setting.default is None else parse(setting, setting.default)
        for setting in BROKER_SETTINGS.values()
    }


def _parsed(texts: Mapping[str, str]) -> dict[str, Any]:
    return {
        setting.attribute: parse(setting, text)
        for name, text in texts.items()
        if (setting := BROKER_SETTINGS.get(name)) is not None
    }


def _take_dynamic(
    values: dict[str, Any], texts: Mapping[str, str], *, allowed: tuple[Scope, ...]
) -> list[str]:
    """Put dynamic values over what is there; the names that could not be taken."""
    ignored = []
    for name, text in sorted(texts.items()):
        setting = BROKER_SETTINGS.get(name)
        if setting is None or setting.scope not in allowed:
            ignored.append(name)
            continue
        try:
            values[setting.attribute] = parse(setting, text)
        except ConfigFault:
            ignored.append(name)
    return ignored
