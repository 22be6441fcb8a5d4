"""A controller without a shell: decisions are committed at once, as batches in a list."""

from random import Random
from typing import Any

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api.registry import handlers
from anabranch.core.controller.controller import Controller
from anabranch.core.controller.result import Reason
from anabranch.core.metadata.batches import decode_batches, encode_batch
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from anabranch.core.metadata.image import MetadataImage, PartitionImage
from anabranch.core.metadata.levels import level_of, to_write
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.outcome import Propose
from anabranch.core.request import Request
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.metadata_records import FeatureLevelRecord
from anabranch.core.wire.own_records import RECORDS_FEATURE

CLUSTER = "test-cluster"


def speaking(level: int) -> list[Feature]:
    """The features of a node that reads our own records up to this level."""
    return [
        Feature(
            name=name,
            min_supported_version=low,
            max_supported_version=level if name == RECORDS_FEATURE else high,
        )
        for name, (low, high) in SUPPORTED_FEATURES.items()
    ]


class World:
    """Commits what the controller decides."""

    def __init__(self, seed: int = 1, settings: dict[str, str] | None = None) -> None:
        config = BrokerConfig.of(settings or {})
        self.controller = Controller(1, CLUSTER, config, Random(seed))
        self.batches: list[bytes] = []
        self.reasons: list[Reason] = []
        self.ticks = 0
        self.now_ms = 1_000_000
        self.controller.begin_term(1, MetadataImage.empty(), CommittedLog(), self.now_ms)
        self.commit(bootstrap_records(1))

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def commit(self, records: Any) -> None:
        if records:
            first, level = self.image.next_offset, level_of(self.image)
            records = to_write(self.image, records)
            self.batches.append(
                encode_batch(records, base_offset=first, epoch=1, now_ms=self.now_ms, level=level)
            )
            self.controller.advance(records, first + len(records) - 1)

    def commit_result(self, result: Any) -> list[str]:
        """Commit a decision; the codes of its reasons."""
        if result is None:
            return []
        self.commit(result.records)
        self.reasons += result.reasons
        return [reason.code for reason in result.reasons]

    def pass_time(self, ms: int) -> list[str]:
        """Let the clock go on, calling `tick` when it wants to be called; the codes that came."""
        codes: list[str] = []
        end_ms = self.now_ms + ms
        while (due_ms := self.controller.next_tick_ms) <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            codes += self.commit_result(self.controller.tick(self.now_ms))
            self.ticks += 1
        self.now_ms = end_ms
        return codes

    def sentences(self, code: str) -> list[str]:
        """What was said with that code."""
        return [reason.sentence for reason in self.reasons if reason.code == code]

    def create(self, name: str, *replicas: list[int], **configs: str) -> None:
        """Make a topic with these replica lists."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                for index, brokers in enumerate(replicas)
            ],
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        response = self.ask(CreateTopicsRequest(topics=[topic]))
        assert response.topics[0].error_code == 0, response.topics[0].error_message

    def level(self, feature: str, level: int) -> None:
        """Set a feature's level, whatever it was."""
        self.commit([FeatureLevelRecord(name=feature, feature_level=level)])

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        """One partition that exists."""
        found = self.image.partition(name, index)
        assert found is not None
        return found

    def ask(self, body: Any, version: int | None = None) -> Any:
        key = type(body).api_key
        handler = handlers()[key]
        request = Request(
            key, version if version is not None else handler.versions[-1], 1, "test", body,
            ANONYMOUS, "CONTROLLER", "127.0.0.1", 1,
        )  # fmt: skip
        assert handler.controller is not None
        outcome = handler.controller(self.controller, request, self.now_ms)
        if isinstance(outcome, Propose):
            self.commit_result(outcome.result)
            return outcome.result.response
        return outcome

    def register(
        self, broker_id: int, *, incarnation: int = 1, old_lives: bool = False, **changes: Any
    ) -> Any:
        """A process registers, after the connection of the one before has closed unless that
        lives."""
        if not old_lives:
            self.hang_up(broker_id)
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER,
            incarnation_id=bytes([broker_id, incarnation]) * 8,
            listeners=[Listener(name="PLAINTEXT", host="h", port=9092)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=None,
            log_dirs=[bytes([broker_id + 100]) * 16],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.ask(request)

    def beat(self, broker_id: int, **changes: Any) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch,
            current_metadata_offset=self.image.offset,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.ask(request)

    def hang_up(self, broker_id: int) -> None:
        """The connection of the registered incarnation closes; who is dialled is not answered."""
        broker = self.image.brokers.get(broker_id)
        if broker is not None:
            self.controller.connection_closed(broker_id, broker.epoch, self.now_ms)
            self.controller.take_probes()

    def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.register(broker_id)
            self.beat(broker_id)

    def replayed(self) -> MetadataImage:
        """The image that the committed bytes make."""
        image = MetadataImage.empty()
        for batch in self.batches:
            for decoded in decode_batches(batch):
                last = decoded.last_offset
                image, _delta = replay_batch(image, decoded.records, last, 1)
        return image
