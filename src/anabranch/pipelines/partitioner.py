"""Which partition each row goes to, as Kafka's Java producer chooses.

In this order: the row's own partition; else, for a row with a key, murmur2 of the key; else the
partition that rows without a key go to just now, which changes whenever a batch's bytes have gone
there (KIP-480, KIP-794). Java draws the next one by lot; here it is the next in turn, from one that
is drawn, so that few batches are spread evenly too. A lane is a partition of a topic, by a number
of the task's own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from anabranch.core.types import TopicPartition
from anabranch.pipelines.arrow_columns import Column
from anabranch.pipelines.encoder import Encoder
from anabranch.pipelines.faults import PipelineFault


class Topics(NamedTuple):
    """The topics of some rows: `codes` has an index of `names` for each row, None if all are 0."""

    names: list[str]
    codes: Any


@dataclass
class Known:
    """What a task remembers of a topic."""

    first_lane: int
    partitions: int
    turn: int
    """The partition of rows without a key, counted on without an end."""
    gone_bytes: int = 0
    """What went there since it changed."""


@dataclass
class Chooser:
    """Chooses for the rows of one task. `count` says how many partitions a topic has."""

    encoder: Encoder
    count: Callable[[str], int]
    batch_bytes: int
    ignores_keys: bool = False
    in_turn: bool = False

    def __post_init__(self) -> None:
        self.lanes: list[TopicPartition] = []
        self._known: dict[str, Known] = {}

    def lanes_of(self, topics: Topics, partition: Any, key: Column, sizes: Any) -> Any:
        """The lane of each row; `partition` is a masked array or None, `sizes` are bytes.

        Raises PipelineFault for a partition that is not there.
        """
        known = [self._topic(name) for name in topics.names]
        counts, firsts = (
            np.array(each, np.int64)
            for each in ([k.partitions for k in known], [k.first_lane for k in known])
        )
        codes = np.zeros(len(sizes), np.int64) if topics.codes is None else topics.codes
        chosen: Any = np.full(len(sizes), -1, np.int64)
        if partition is not None:
            self._check(partition, codes, counts, topics.names)
            chosen[~partition.mask] = partition.data[~partition.mask]
        if not (self.ignores_keys or self.in_turn):
            has_key = (chosen < 0) & ~key.null
            if has_key.any():
                hashes = self.encoder.hashes(key)
                chosen[has_key] = (hashes % counts[codes])[has_key]
        for code, each in enumerate(known):
            rows = (chosen < 0) & (codes == code)
            if rows.any():
                chosen[rows] = self._without_key(each, sizes[rows])
        return firsts[codes] + chosen

    def _topic(self, name: str) -> Known:
        known = self._known.get(name)
        if known is None:
            partitions = self.count(name)
            known = Known(len(self.lanes), partitions, random.randrange(partitions))
            self._known[name] = known
            self.lanes += [TopicPartition(name, each) for each in range(partitions)]
        return known

    def _without_key(self, known: Known, sizes: Any) -> Any:
        if self.in_turn:
            turns: Any = known.turn + np.arange(len(sizes))
            known.turn += len(sizes)
            return turns % known.partitions
        batch_bytes = max(1, self.batch_bytes)
        gone = known.gone_bytes + np.cumsum(sizes)
        turns = known.turn + (gone - sizes) // batch_bytes
        known.turn += int(gone[-1] // batch_bytes)
        known.gone_bytes = int(gone[-1] % batch_bytes)
        return turns % known.partitions

    def _check(self, partition: Any, codes: Any, counts: Any, names: list[str]) -> None:
        wrong = ~partition.mask & ((partition.data < 0) | (partition.data >= counts[codes]))
        if wrong.any():
            row = int(np.argmax(wrong))
            name = names[int(codes[row])]
            raise PipelineFault(
                f"A row has partition {partition.data[row]}, and topic {name!r} has the partitions "
                f"0 to {counts[codes[row]] - 1}: correct the column `partition`, make it null to "
                "have one chosen, or add partitions to the topic."
            )
