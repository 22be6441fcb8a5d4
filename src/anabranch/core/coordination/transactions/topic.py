"""The topic `__transaction_state`: its shape, and which of its partitions an id is in.

Source: Kafka's TransactionStateManager (the same hash as of groups, so that every broker and tool
finds the same coordinator) and its topic's settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.coordination.internal_topics import fitting_factor, java_hash
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.settings.broker import BrokerConfig

TRANSACTION_TOPIC = "__transaction_state"
REPLICATION_FACTOR = "transaction.state.log.replication.factor"
MIN_ISR = "transaction.state.log.min.isr"


def partition_of(transactional_id: str, image: MetadataImage, config: BrokerConfig) -> int:
    """Index of the partition that a transactional id is in."""
    topic = image.topic(TRANSACTION_TOPIC)
    if topic is None:
        return java_hash(transactional_id) % config.transaction_state_log_num_partitions
    return java_hash(transactional_id) % len(topic.partitions)


def transaction_topic(image: MetadataImage, config: BrokerConfig) -> CreatableTopic:
    """How the topic is created when the first producer asks for its coordinator.

    As many replicas as `__consumer_offsets` gets. By default one of them may be missing where there
    are two or more, so that a cluster of two goes on with one.
    """
    factor = config.transaction_state_log_replication_factor
    if REPLICATION_FACTOR not in config.static:
        factor = fitting_factor(factor, image)
    in_sync = config.transaction_state_log_min_isr
    if MIN_ISR not in config.static:
        in_sync = max(1, min(in_sync, factor - 1))
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(in_sync),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    return CreatableTopic(
        name=TRANSACTION_TOPIC,
        num_partitions=config.transaction_state_log_num_partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=name, value=text) for name, text in settings.items()],
    )
