"""The groups that one broker coordinates: which there are, who may ask, and what time does to them.

What: `GroupCoordinator` finds the group of a request, follows the leadership of the partitions of
`__consumer_offsets`, hands loaded groups over, and forgets those of partitions that moved away. The
rules of joining are in `rebalance` and `members`, those of offsets in `offsets`.

Rule kept: a request reaches a group only while this broker has led the group's partition ever since
it was loaded; whoever waits in a group that moves away is told NOT_COORDINATOR.
Source: KIP-62, KIP-211, KIP-345, KIP-394. Not here: sockets, sleeping, KIP-848 groups.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from anabranch.core.coordination.answers import Answer
from anabranch.core.coordination.groups import offsets
from anabranch.core.coordination.groups.classic import rebalance
from anabranch.core.coordination.groups.classic.group import Group
from anabranch.core.coordination.groups.classic.states import DEAD
from anabranch.core.coordination.groups.loader import Loader
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from anabranch.core.coordination.groups.shard import Shard
from anabranch.core.coordination.sliced import begun
from anabranch.core.coordination.timers import Action, Timer, Timers
from anabranch.core.due import COORDINATORS
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.metadata.image import EMPTY

if TYPE_CHECKING:
    from anabranch.core.coordination.host import Host
    from anabranch.core.metadata.image import MetadataDelta
    from anabranch.core.replication.replica import Replica
    from anabranch.core.settings.broker import BrokerConfig


class GroupCoordinator:
    """All groups of one broker. Calls are for the loop's thread."""

    def __init__(self, broker: Host) -> None:
        self.broker = broker
        self.groups: dict[str, Group] = {}
        self.shards: dict[int, Shard] = {}
        self.to_load: list[Any] = broker.mailbox.to_load
        """Work of every coordinator that is done in slices, or by `load` at once."""
        self.to_load.clear()
        self.timers = Timers(broker.mailbox.due.marker(COORDINATORS))
        self.rebalances_total = 0
        self.commits_total = 0
        self.expired_offsets_total = 0

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings as they are now."""
        return self.broker.config

    @property
    def loading(self) -> list[Shard]:
        """The partitions of groups that wait to be read."""
        return [shard for shard in self.shards.values() if shard in self.to_load]

    # Finding.

    def shard_of(self, group_id: str, now_ms: int) -> Shard:
        """The loaded partition that a group is in.

        Raises NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        broker = self.broker
        return self.shard_in(partition_of(group_id, broker.image, broker.config), now_ms)

    def shard_in(self, index: int, now_ms: int) -> Shard:
        """As `shard_of`, of a partition whose index is known."""
        shard = self.shards.get(index)
        if shard is None or not shard.is_current:
            shard = self._lead(index, now_ms)
        if not shard.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        shard.catch_up(now_ms)
        return shard

    def find(self, group_id: str, now_ms: int) -> Group | None:
        """A group that this broker coordinates, or None when there is none of that name.

        Raises as `shard_of` does.
        """
        group = self.groups.get(group_id)
        if group is not None and group.shard.is_current:
            group.shard.catch_up(now_ms)
        else:
            self.shard_of(group_id, now_ms)
            group = self.groups.get(group_id)
        return None if group is None or group.state is DEAD else group

    def find_or_create(self, group_id: str, now_ms: int) -> Group:
        """The group of that name; a new one is empty and not written until something is."""
        group = self.find(group_id, now_ms)
        if group is None:
            shard = self.shard_of(group_id, now_ms)
            group = self.groups[group_id] = Group(group_id, shard, now_ms)
        return group

    def forget(self, group: Group, now_ms: int) -> None:
        """The group is no more: deleted, never written, or coordinated elsewhere."""
        for timer in group.pending_members.values():
            timer.cancel()
        if group.phase_timer is not None:
            group.phase_timer.cancel()
        rebalance.refuse_all(self, group, ErrorCode.NOT_COORDINATOR)
        for member in group.members.values():
            if member.timer is not None:
                member.timer.cancel()
        group.become(DEAD, now_ms)
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    # Leading partitions of the offsets topic.

    def follow_leadership(self, now_ms: int) -> None:
        """Compare what is led with what is loaded; called when replicas have changed."""
        for index, shard in tuple(self.shards.items()):
            if not shard.is_current:
                self._unload(index, shard, now_ms)
        for index, replica in self.broker.partitions.by_name.get(OFFSETS_TOPIC, {}).items():
            if replica.is_leader and index not in self.shards:
                self._begin(index, replica, now_ms)

    def take_delta(self, delta: MetadataDelta, now_ms: int) -> None:
        """The metadata has changed, and `broker.image` is the newest."""
        if delta.deleted_topics:
            deleted = {topic.name for topic in delta.deleted_topics}
            offsets.topics_deleted(self, deleted, now_ms)

    def _lead(self, index: int, now_ms: int) -> Shard:
        old = self.shards.get(index)
        if old is not None:
            self._unload(index, old, now_ms)
        replica = self.broker.partitions.get(OFFSETS_TOPIC, index)
        if replica is None or not replica.is_leader:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return self._begin(index, replica, now_ms)

    def _begin(self, index: int, replica: Replica, now_ms: int) -> Shard:
        shard = self.shards[index] = Shard(self.broker, replica, self)
        if replica.start_offset == replica.end_offset:
            self.loaded(Loader(shard), now_ms)
        else:
            self.to_load.append(shard)
        return shard

    def _unload(self, index: int, shard: Shard, now_ms: int) -> None:
        del self.shards[index]
        if shard in self.to_load:
            self.to_load.remove(shard)
        for group in [each for each in self.groups.values() if each.shard is shard]:
            self.forget(group, now_ms)

    def loader(self, shard: Shard) -> Loader:
        """What reads a shard's groups; `loaded` takes the result."""
        return Loader(shard, self.config.offsets_load_buffer_size)

    def load(self, now_ms: int) -> None:
        """Do all that waits at once, of whatever coordinator, where no read waits for a disk."""
        while self.to_load:
            load = begun(self.broker.mailbox)
            try:
                for cold in load.steps(now_ms):
                    if cold is not None:
                        cold.warm()
            except StorageFault as fault:
                load.failed(fault)
            load.end(now_ms)

    def loaded(self, loader: Loader, now_ms: int) -> None:
        """A shard was read to its end: its groups take part from now on."""
        shard: Shard = loader.shard
        if not shard.is_current or self.shards.get(shard.place.partition) is not shard:
            return
        shard.is_loaded, shard.read_to = True, loader.read_to
        shard.undecided = loader.undecided
        for group in loader.groups.values():
            self.groups[group.group_id] = group
            for member in group.members.values():
                rebalance.keep_alive(self, group, member)
            if len(group.members) > self.config.group_max_size:
                rebalance.prepare(self, group, now_ms)
        shard.image_at_start = EMPTY  # an old image is large
        offsets.forget_gone(self, shard, loader.groups.values(), now_ms)

    # Time and answers.

    def answer(self) -> Answer:
        """An answer that is given later."""
        return Answer(self.broker.changed)

    def after(self, delay_ms: int, action: Action) -> Timer:
        """Run `action` when that much time has gone by."""
        return self.timers.at(self.broker.steady_ms + delay_ms, action)

    def tick(self, now_ms: int) -> None:
        """Do what is due by `broker.steady_ms`."""
        self.timers.run(self.broker.steady_ms, now_ms)

    def statistics(self) -> dict[str, int]:
        """Counts for metrics: groups by state, members, offsets, and totals."""
        states = Counter(group.state.name.lower() for group in self.groups.values())
        return {
            "groups": len(self.groups),
            "members": sum(len(group.members) for group in self.groups.values()),
            "offsets": sum(
                len(partitions)
                for group in self.groups.values()
                for partitions in group.offsets.values()
            ),
            "loading": len(self.loading),
            "rebalances_total": self.rebalances_total,
            "commits_total": self.commits_total,
            "expired_offsets_total": self.expired_offsets_total,
            **{f"groups_{name}": count for name, count in sorted(states.items())},
        }
