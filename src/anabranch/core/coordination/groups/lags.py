"""How many records the groups of a broker have yet to read: one look, in steps.

What: `LagRound` walks the groups that this broker coordinates, says which leaders have to be asked
for the log ends that are not known here, takes their answers, and gives the offsets that are most
behind. A log end is the high watermark, as for kafka_exporter and Kafka's tools: that of a replica
which leads here, of a diskless partition that this broker follows, or what ListOffsets of the
partition's leader says. Rules kept: at most MOST_OFFSETS are looked at and MOST_SERIES told, and
what is left out is counted; a log end that nobody tells makes no lag; offsets of topics that are
no more are not looked at. Not here: when a round is made, sending (`server/group_lags.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.coordination.groups.offsets import current_topic_id, is_of
from anabranch.core.errors import ApiError
from anabranch.core.types import LATEST
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from anabranch.core.coordination.groups.committed_offset import CommittedOffset
    from anabranch.core.coordination.groups.host import Groups

MOST_OFFSETS = 200_000
"""Committed offsets that a round looks at: about a second of work, in slices."""
MOST_SERIES = 10_000
"""Offsets that are told: those that are most behind. As many as for lags of diskless partitions."""
MOST_ASKED = 5_000
"""Partitions that one request asks a leader for."""
OFFSETS_A_STEP = 1_000
CONSUMER = -1
"""The replica id of those who read up to the high watermark."""

Place = tuple[str, int]
Found = tuple[str, str, int, int]
"""Group, topic, partition, and committed offset."""


class GroupLag(NamedTuple):
    """One committed offset, and how many records are behind it up to the log end."""

    group: str
    topic: str
    partition: int
    offset: int
    lag: int


class GroupLags(NamedTuple):
    """What a round found, by name."""

    shown: tuple[GroupLag, ...] = ()
    left_out: int = 0
    """Offsets beyond MOST_OFFSETS or MOST_SERIES."""
    unknown: int = 0
    """Offsets of partitions whose log end nobody told."""


class LagRound:
    """One look at all groups. `walk`, then `asks` and `answered`, then `result`."""

    def __init__(self, coordinator: Groups, *, most_offsets: int = MOST_OFFSETS) -> None:
        self._coordinator = coordinator
        self._most_offsets = most_offsets
        self._found: list[Found] = []
        self._seen = 0
        self._ends: dict[Place, int] = {}
        self._unknown: dict[Place, None] = {}
        self._beyond = 0

    def walk(self) -> Iterator[None]:
        """Note every offset; between two steps others may have their turn, and groups may go."""
        coordinator = self._coordinator
        steps = 0
        for name in list(coordinator.groups):
            group = coordinator.groups.get(name)
            if group is None or not group.shard.is_current:
                continue
            for topic in list(group.offsets):
                self._look(group.group_id, topic, group.offsets.get(topic, {}))
            if self._seen >= OFFSETS_A_STEP * (steps + 1):
                steps = self._seen // OFFSETS_A_STEP
                yield

    def _look(self, group_id: str, topic: str, offsets: Mapping[int, CommittedOffset]) -> None:
        self._seen += len(offsets)
        if len(self._found) >= self._most_offsets:
            self._beyond += len(offsets)
            return
        topic_id = current_topic_id(self._coordinator.broker.image, topic)
        for partition, committed in offsets.items():
            if committed.offset >= 0 and is_of(topic_id, committed):
                self._found.append((group_id, topic, partition, committed.offset))
                self._know(topic, partition)

    def _know(self, topic: str, partition: int) -> None:
        place = topic, partition
        if place not in self._ends and place not in self._unknown:
            end = self._end_here(topic, partition)
            if end is None:
                self._unknown[place] = None
            else:
                self._ends[place] = end

    def _end_here(self, topic: str, partition: int) -> int | None:
        broker = self._coordinator.broker
        try:
            found = broker.partitions.find_leader(broker.image, topic, partition)
        except ApiError:
            return None
        end = found.high_watermark
        return None if end < 0 or found.high_watermark_lags else end

    def asks(self) -> list[tuple[int, ListOffsetsRequest]]:
        """Whom to ask for log ends that are not known here: brokers, and what to send them."""
        image = self._coordinator.broker.image
        by_leader: dict[int, list[Place]] = {}
        for topic, partition in sorted(self._unknown):
            found = image.topic(topic)
            state = None if found is None else found.partitions.get(partition)
            if state is not None and state.leader >= 0:
                by_leader.setdefault(state.leader, []).append((topic, partition))
        return [
            (leader, _request(places[first : first + MOST_ASKED]))
            for leader, places in sorted(by_leader.items())
            for first in range(0, len(places), MOST_ASKED)
        ]

    def answered(self, response: ListOffsetsResponse) -> None:
        """A leader has told ends; partitions with an error stay unknown."""
        for topic in response.topics:
            for each in topic.partitions:
                place = topic.name, each.partition_index
                if not each.error_code and each.offset >= 0 and place in self._unknown:
                    del self._unknown[place]
                    self._ends[place] = each.offset

    def result(self, most: int = MOST_SERIES) -> GroupLags:
        """What was found. Nothing that others change is looked at: it may be made in a thread."""
        ends = self._ends
        known = [
            (max(0, end - found[3]), found)
            for found in self._found
            if (end := ends.get(found[1:3])) is not None
        ]
        shown = sorted(GroupLag(*found, lag) for lag, found in _most_behind(known, most))
        left_out = len(known) - len(shown) + self._beyond
        return GroupLags(tuple(shown), left_out, len(self._found) - len(known))


def _most_behind(known: list[tuple[int, Found]], most: int) -> list[tuple[int, Found]]:
    """Those that are most behind; of equal ones the first, so that they stay the same. Numbers
    alone are sorted, since a sort holds up every thread."""
    if len(known) <= most:
        return known
    if not most:
        return []
    least = sorted((lag for lag, _ in known), reverse=True)[most - 1]
    room = most - sum(lag > least for lag, _ in known)
    shown = []
    for each in known:
        if each[0] > least:
            shown.append(each)
        elif each[0] == least and room > 0:
            room -= 1
            shown.append(each)
    return shown


def _request(places: list[Place]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, partition in places:
        asked = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        topics.setdefault(topic, []).append(asked)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
    )
