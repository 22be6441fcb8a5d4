"""What the rules of groups ask of the coordinator that they work for.

Why a Protocol: the coordinator calls the rules of joining and of offsets; they know no more of it
than this, and not its module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anabranch.core.coordination.answers import Answer
    from anabranch.core.coordination.groups.classic.group import Group
    from anabranch.core.coordination.groups.shard import Shard
    from anabranch.core.coordination.host import Host
    from anabranch.core.coordination.timers import Action, Timer
    from anabranch.core.settings.broker import BrokerConfig


class Groups(Protocol):
    """The groups of one broker: see `core.coordination.groups.coordinator.GroupCoordinator`."""

    broker: Host
    groups: dict[str, Group]
    shards: dict[int, Shard]
    rebalances_total: int
    commits_total: int
    expired_offsets_total: int

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings as they are now."""

    def find(self, group_id: str, now_ms: int) -> Group | None:
        """The group of that name, if there is one. Raises ApiError."""

    def find_or_create(self, group_id: str, now_ms: int) -> Group:
        """The group of that name, which may be new. Raises ApiError."""

    def forget(self, group: Group, now_ms: int) -> None:
        """The group is no more."""

    def answer(self) -> Answer:
        """An answer that is given later."""

    def after(self, delay_ms: int, action: Action) -> Timer:
        """Run `action` when that much time has gone by."""
