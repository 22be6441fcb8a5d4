"""Replica lists for topics of which a rehearsal's file does not name them: the cluster's placers.

What: `FilePlacement` asks, topic after topic, the placer that the topic or the cluster names, as
the controller of a running cluster does, and the managed one for diskless topics. Why when the file
is read: the same lists are then given to the simulated cluster and to real processes. Rule kept: a
topic sees what those before it took. Not here: the placers (`core/placement`), topics that are
created or grow while a rehearsal runs, which its controller places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from random import Random

from anabranch.core.placement.managed import managed
from anabranch.core.placement.placer import Ask, Loads, Placement, UsableBroker, place
from anabranch.core.placement.placers import PLACERS
from anabranch.core.settings.catalogue import TOPIC_SETTINGS

PLACER = "replica.placer.class.name"
Rows = tuple[tuple[int, ...], ...]


class FilePlacement:
    """Places the topics of one file. `settings` are those of every broker."""

    def __init__(
        self,
        brokers: Sequence[int],
        racks: Mapping[int, str],
        settings: Mapping[str, str],
        seed: int,
    ) -> None:
        self._brokers = [UsableBroker(each, racks.get(each), fenced=False) for each in brokers]
        self._default = settings.get(PLACER, str(TOPIC_SETTINGS[PLACER].default))
        self._random = Random(f"{seed}/placing")
        self._replicas: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        self._cursor = 0

    def place(self, settings: Mapping[str, str], *, partitions: int, replication: int) -> Rows:
        """The lists of a classic topic. Raises ClientFault."""
        placer = PLACERS[settings.get(PLACER, self._default)]
        ask = Ask(partitions, replication, cursor=self._cursor, loads=self._loads)
        return self._take(place(placer, self._brokers, ask, self._random))

    def manage(self, *, partitions: int) -> Rows:
        """Those of a diskless topic: one replica in each rack."""
        return self._take(
            managed(self._brokers, Ask(partitions, 0, loads=self._loads), self._random)
        )

    @property
    def _loads(self) -> Loads:
        return Loads(self._replicas, self._leaders)

    def _take(self, placement: Placement) -> Rows:
        self._replicas.update(chain.from_iterable(placement.rows))
        self._leaders.update(row[0] for row in placement.rows)
        self._cursor = placement.cursor
        return tuple(placement.rows)
