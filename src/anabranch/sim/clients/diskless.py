"""Clients of diskless topics: they send to any broker and read from any, and change at random.

What: a producer and a reader as others are (`producer.py`, `fetcher.py`), but for whom they ask: a
broker drawn anew now and then, with batches in flight through several. A reader tells its
`on_thrown` when a broker says that its position is out of range. Not here: judgement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.diskless.rows import NO_PRODUCER
from anabranch.core.types import TopicId, TopicPartition
from anabranch.sim.checks.violation import Violation
from anabranch.sim.clients.admin import Admin
from anabranch.sim.clients.client import NOBODY, Client, Place
from anabranch.sim.clients.fetcher import Fetcher, ReadOptions, _Position
from anabranch.sim.clients.producer import Producer, _Batch, _Lane

SWITCHES = 0.25
"""How often another broker is asked."""

OnThrown = Callable[[TopicPartition, TopicId, int], None]
"""Takes a partition, its topic's id, and the position that was refused."""


class AnyBroker(Client):
    """A client that takes any broker for the leader."""

    def _learn(self, topic: str, part: Any) -> None:
        place = TopicPartition(topic, part.partition_index)
        known = self.places.get(place)
        epoch = max(part.leader_epoch, -1 if known is None else known.leader_epoch)
        self.places[place] = Place(self.anybody(), epoch, tuple(part.replica_nodes))


class DisklessAdmin(AnyBroker, Admin):
    """The operator of diskless topics."""


class DisklessProducer(AnyBroker, Producer):
    """See the module. `on_send` hears of each record that is sent, each time."""

    on_send: Callable[[bytes], None]

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._repeated: set[int] = set()
        """Producer ids under which a batch was sent again: a copy may still come."""
        self._rested: dict[TopicPartition, tuple[int, int]] = {}
        """With which id and epoch the producer rested in a partition."""

    def rest(self, place: TopicPartition) -> int:
        """Its id, if it may be forgotten in a partition: it is idle there, all that it sent under
        this id was acknowledged, and no copy is under way, which would be taken for new."""
        lane = self.lanes.get(place)
        if lane is None or lane.waiting or lane.flying or not lane.next_sequence:
            return NO_PRODUCER
        if lane.producer_id in self._repeated:
            return NO_PRODUCER
        self._rested[place] = lane.producer_id, lane.epoch
        return lane.producer_id

    def _out_of_order(self, lane: _Lane, batch: _Batch) -> None:
        identity = lane.producer_id, lane.epoch
        super()._out_of_order(lane, batch)
        if self._rested.get(lane.place) == identity != (lane.producer_id, lane.epoch):
            raise Violation(
                "idle-producer",
                "A producer that was idle is refused for good.",
                {"place": lane.place, "producer": identity[0], "sequence": batch.sequence},
            )

    def _send(self, lane: _Lane, batch: _Batch, leader: int) -> None:
        if batch.attempts:
            self._repeated.add(lane.producer_id)
        if self.random.random() < SWITCHES:
            leader = self.anybody()
        for send in batch.sends:
            self.on_send(send.value)
        super()._send(lane, batch, leader)


class DisklessReader(AnyBroker):
    """A client that reads diskless partitions, in no group."""

    def begin(
        self, reading: ReadOptions, places: list[TopicPartition], on_thrown: OnThrown
    ) -> None:
        """Start to read."""
        self.fetcher = DisklessFetcher(self, reading, on_thrown)
        for place in places:
            self.fetcher.read(place)
        self.fetcher.turn()

    def topic_changed(self, name: str) -> None:
        self.fetcher.topic_changed(name)


class DisklessFetcher(Fetcher):
    """Reads from any broker."""

    def __init__(self, client: AnyBroker, reading: ReadOptions, on_thrown: OnThrown) -> None:
        super().__init__(client, reading)
        self._anybody = client.anybody
        self._on_thrown = on_thrown

    def _source(self, position: _Position) -> int:
        if position.source == NOBODY or self.client.random.random() < SWITCHES:
            position.source = self._anybody()
        return position.source

    def _out_of_range(self, position: _Position, node_id: int) -> None:
        self._thrown_out(position)

    def _thrown_out(self, position: _Position) -> None:
        self._on_thrown(position.place, position.topic_id, position.offset)
        super()._thrown_out(position)
