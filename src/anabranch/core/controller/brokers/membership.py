"""What registered brokers do to the partitions: who is usable, acceptable, and what leaving causes.

Rule kept (KIP-841): a fenced or leaving broker is neither leader nor in sync, except as the last
member that may lead again. Records follow the order of Kafka's ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from msgspec.structs import replace

from anabranch.core.controller.brokers.cordons import cordoned
from anabranch.core.controller.brokers.full_folders import full_folders, with_room, without_room
from anabranch.core.controller.cluster_state import ClusterState, PartitionKey
from anabranch.core.controller.partitions.elections import Rules, change_isr
from anabranch.core.controller.reasons import Cause, partition_reasons
from anabranch.core.controller.result import Reason
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.directories import (
    LOST_DIRECTORY,
    default_directory,
    directory_of,
    emptied,
    knows_directories,
)
from anabranch.core.metadata.features import elr_enabled
from anabranch.core.metadata.image import (
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    MetadataImage,
    PartitionImage,
)
from anabranch.core.placement.placer import UsableBroker
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.topic import TopicConfig, effective_topic_config
from anabranch.core.wire.metadata_records import MetadataRecord, PartitionChangeRecord


def check_broker_epoch(image: MetadataImage, broker_id: int, epoch: int) -> BrokerImage:
    """The registered broker; raises STALE_BROKER_EPOCH when id or epoch are not its."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ClientFault(
            ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}"
        )
    if broker.epoch != epoch:
        raise ClientFault(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {epoch}, but got broker epoch {broker.epoch}",
        )
    return broker


def usable_brokers(image: MetadataImage) -> list[UsableBroker]:
    """Brokers that may be given replicas: registered, not leaving, not cordoned."""
    closed = cordoned(image)
    return [
        UsableBroker(broker_id, image.brokers[broker_id].rack, image.brokers[broker_id].fenced)
        for broker_id in sorted(image.brokers)
        if broker_id not in closed and not image.brokers[broker_id].in_controlled_shutdown
    ]


def is_active(image: MetadataImage, broker_id: int) -> bool:
    """Whether the broker may lead and be in sync."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.active


def _with_lost(partition: PartitionImage, broker_id: int) -> PartitionImage:
    """The partition as it is told when a broker's replica of it is lost."""
    directories = list(partition.directories)
    if len(directories) != len(partition.replicas):
        directories = [UNASSIGNED_DIRECTORY] * len(partition.replicas)
    if broker_id in partition.replicas:
        directories[partition.replicas.index(broker_id)] = LOST_DIRECTORY
    return replace(partition, directories=tuple(directories))


class Consequences:
    """Makes the partition records that a broker's change of state causes, and says why.

    `suspects` are brokers whose absence is not certain yet: what only they are known to have is
    not given up for lost.
    """

    def __init__(
        self, state: ClusterState, config: BrokerConfig, suspects: Collection[int]
    ) -> None:
        self.state = state
        self.config = config
        self.suspects = suspects
        self.elr = elr_enabled(state.image)
        self.full = full_folders(state.image)
        self.topics: dict[str, TopicConfig] = {}
        self.reasons: list[Reason] = []

    def leaves(self, broker_id: int, cause: Cause) -> Iterator[MetadataRecord]:
        """The broker is fenced or shutting down: it leaves every ISR, and of diskless partitions
        the leadership alone."""
        keys = self.state.in_isr.get(broker_id, {})
        yield from self._without(broker_id, keys, frozenset(), cause)
        yield from self._leads_no_longer(broker_id, cause)

    def lost(
        self, broker_id: int, cause: Cause, but: Collection[PartitionKey] = ()
    ) -> Iterator[MetadataRecord]:
        """The broker came back after a crash: what it had, but for some partitions, may be gone, so
        it leaves ELRs too."""
        had = self._had(broker_id) if self.elr else self.state.in_isr.get(broker_id, {})
        keys = {key: None for key in had if key not in but}
        unclean = frozenset((broker_id,)) if self.elr else frozenset()
        yield from self._without(broker_id, keys, unclean, cause)
        yield from self._leads_no_longer(broker_id, cause)

    def set_back(self, broker_id: int, older: Collection[bytes]) -> Iterator[MetadataRecord]:
        """The broker came back after a crash, and these folders are older copies: what counted
        there, or nobody said where, is told as lost, so that it does not lead before it was in sync
        again."""
        keys = self._had(broker_id)
        for key in self.state.leaderless:
            if broker_id in self.state.partition(key).last_known_elr:
                keys[key] = None
        elsewhere = set(self.state.image.brokers[broker_id].log_dirs).difference(older)
        keys = {
            key: None
            for key in keys
            if directory_of(self.state.partition(key), broker_id) not in elsewhere
        }
        unclean, cause = frozenset((broker_id,)), Cause.FOLDERS_OLDER
        yield from self._without(broker_id, keys, unclean, cause, is_lost=True)
        yield from self.lost(broker_id, Cause.RESTARTED_UNCLEANLY, keys)

    def loses_folders(
        self, broker_id: int, directories: Collection[bytes]
    ) -> Iterator[MetadataRecord]:
        """Folders of the broker failed: it leaves the ISRs of what lies there."""
        keys = {
            key: None
            for key in self.state.in_isr.get(broker_id, {})
            if directory_of(self.state.partition(key), broker_id) in directories
        }
        yield from self.leaves_some(broker_id, keys)

    def leaves_some(
        self,
        broker_id: int,
        keys: dict[PartitionKey, None],
        cause: Cause = Cause.FOLDER_FAILED,
    ) -> Iterator[MetadataRecord]:
        """The broker leaves the ISRs of these partitions, which it lost."""
        known = self.state.in_isr.get(broker_id, {})
        here = {key: None for key in keys if key in known}
        yield from self._without(broker_id, here, frozenset(), cause)

    def gives_way(self, broker_id: int) -> Iterator[MetadataRecord]:
        """The room of the broker's folders changed: of what it is in sync with, replicas without
        room leave the leadership and the ISR to those with room."""
        for key in list(self.state.in_isr.get(broker_id, {})):
            partition, rules = self.state.partition(key), self.rules(key)
            isr = with_room(partition.isr, rules, partition.isr)
            if isr != partition.isr:
                record = change_isr(*key, partition, isr, rules)
                left = next(each for each in partition.isr if each not in isr)
                yield from self._said(key, partition, record, rules, left, Cause.NO_ROOM)

    def returns(self, broker_id: int) -> Iterator[MetadataRecord]:
        """The broker is unfenced: leaderless partitions may elect it. The ISR does not grow."""
        image = self.state.image

        def acceptable(other: int) -> bool:
            return other == broker_id or is_active(image, other)

        for key in list(self.state.leaderless):
            partition = self.state.partition(key)
            if broker_id in partition.replicas:
                rules = self._rules(key, partition, acceptable)
                record = change_isr(*key, partition, partition.isr, rules)
                yield from self._said(key, partition, record, rules, broker_id, Cause.RETURNED)

    def given_up(self, broker_id: int) -> Iterator[MetadataRecord]:
        """The broker was suspected and is really silent: its partitions may elect without it."""
        for key in self._had(broker_id):
            partition = self.state.partition(key)
            if partition.leader < 0:
                rules = self.rules(key)
                record = change_isr(*key, partition, partition.isr, rules)
                cause = Cause.SESSION_EXPIRED
                yield from self._said(key, partition, record, rules, broker_id, cause)

    def rules(self, key: PartitionKey) -> Rules:
        """What holds for a partition's election while no broker changes its state."""
        image = self.state.image
        partition = self.state.partition(key)
        return self._rules(key, partition, lambda broker_id: is_active(image, broker_id))

    def _leads_no_longer(self, broker_id: int, cause: Cause) -> Iterator[MetadataRecord]:
        """The diskless partitions that the broker leads get other leaders."""
        keys = self.state.diskless.led_by.get(broker_id, {})
        yield from self._without(broker_id, keys, frozenset(), cause)

    def _had(self, broker_id: int) -> dict[PartitionKey, None]:
        keys = dict(self.state.in_isr.get(broker_id, {}))
        keys.update(self.state.in_elr.get(broker_id, {}))
        return keys

    def _without(
        self,
        broker_id: int,
        keys: dict[PartitionKey, None],
        unclean: frozenset[int],
        cause: Cause,
        *,
        is_lost: bool = False,
    ) -> Iterator[MetadataRecord]:
        image = self.state.image
        is_lost = is_lost and knows_directories(image)

        def acceptable(other: int) -> bool:
            return other != broker_id and is_active(image, other)

        for key in list(keys):
            partition = self.state.partition(key)
            if is_lost:
                partition = _with_lost(partition, broker_id)
            isr = tuple(member for member in partition.isr if member != broker_id)
            rules = self._rules(key, partition, acceptable)
            record = change_isr(*key, partition, isr, rules, unclean)
            if is_lost:
                record = record or PartitionChangeRecord(partition_id=key[1], topic_id=key[0])
                record.directories = record.directories or list(partition.directories)
            yield from self._said(key, partition, record, rules, broker_id, cause)

    def _said(
        self,
        key: PartitionKey,
        before: PartitionImage,
        record: PartitionChangeRecord | None,
        rules: Rules,
        broker_id: int,
        cause: Cause,
    ) -> Iterator[MetadataRecord]:
        if record is None:
            return
        place = f"{self.state.topic_name(key)}-{key[1]}"
        waits = rules.unclean_allowed and rules.only_clean
        self.reasons += partition_reasons(place, before, record, broker_id, cause, waits=waits)
        yield record

    def _rules(
        self, key: PartitionKey, partition: PartitionImage, acceptable: Callable[[int], bool]
    ) -> Rules:
        topic = self.topic_config(self.state.topic_name(key))
        if topic.diskless_enable:
            return Rules(acceptable, 1, elr_enabled=False, is_diskless=True)
        suspects = self.suspects
        return Rules(
            acceptable,
            topic.min_insync_replicas,
            self.elr,
            topic.unclean_leader_election_enable,
            bool(suspects) and not {*partition.isr, *partition.elr}.isdisjoint(suspects),
            emptied(self.state.image, partition),
            self._directory,
            roomless=without_room(self.full, self.state.image, partition),
        )

    def _directory(self, broker_id: int) -> bytes:
        return default_directory(self.state.image.brokers.get(broker_id))

    def topic_config(self, name: str) -> TopicConfig:
        """A topic's effective settings, looked up once."""
        topic = self.topics.get(name)
        if topic is None:
            topic = effective_topic_config(self.state.image, name, self.config)
            self.topics[name] = topic
        return topic
