"""A cluster as a mirror sees it: topics, transactional ids with their epochs, groups.

What: requests of producers are checked against the newest epoch of their transactional id, as a
broker does; who asks for the id ends what was open under it. Rule kept: a request is done whole or
not at all; that its answer is lost is for the caller to play. Source: KIP-98, KIP-360.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from anabranch.core.mirror.topics import TopicShape
from anabranch.sim.mirror.log import Log

Place = tuple[str, int]


class Fenced(Exception):
    """Another process has the transactional id."""


class Trouble(Exception):
    """A request failed in a way that trying again may mend; it may have been done."""


class Session(NamedTuple):
    """What a producer knows of its transactional id."""

    name: str
    producer_id: int
    epoch: int


@dataclass
class Topic:
    """A topic, and who made it."""

    topic_id: bytes
    logs: list[Log]
    is_compacted: bool = False


@dataclass
class Producers:
    """A transactional id: its epoch, and the partitions of its open transaction."""

    producer_id: int
    epoch: int = 0
    logs: list[Log] = field(default_factory=list)


class Cluster:
    """See the module."""

    def __init__(self, alias: str, random: Random) -> None:
        self.alias = alias
        self.topics: dict[str, Topic] = {}
        self.producers: dict[str, Producers] = {}
        self.groups: dict[str, dict[Place, int]] = {}
        self.active: set[str] = set()
        """Groups with members."""
        self._random = random

    def create(self, name: str, partitions: int, *, compacted: bool = False) -> None:
        """Create a topic that is not there, or grow one that is."""
        topic_id = self._random.randbytes(16)
        topic = self.topics.setdefault(name, Topic(topic_id, [], compacted))
        while len(topic.logs) < partitions:
            topic.logs.append(Log())

    def shapes(self) -> dict[str, TopicShape]:
        """All topics."""
        return {
            name: TopicShape(name, len(each.logs), each.topic_id)
            for name, each in self.topics.items()
        }

    def log(self, place: Place) -> Log:
        """One partition. Raises Trouble where there is none."""
        topic = self.topics.get(place[0])
        if topic is None or place[1] >= len(topic.logs):
            raise Trouble
        return topic.logs[place[1]]

    # Producers.

    def init(self, name: str) -> Session:
        """Take a transactional id: what is open under it is aborted, its old owner is fenced."""
        known = self.producers.setdefault(name, Producers(len(self.producers) + 1_000))
        self._end(known, commits=False)
        known.epoch += 1
        return Session(name, known.producer_id, known.epoch)

    def produce(self, session: Session | None, place: Place, batch: bytes | bytearray) -> int:
        """Where a batch lands; in the transaction of the session, if there is one. Raises
        Fenced."""
        log = self.log(place)
        if session is None:
            return log.append(batch)
        known = self._owned(session)
        if log not in known.logs:
            known.logs.append(log)
        return log.append(batch, session.producer_id, transactional=True)

    def end(self, session: Session, *, commits: bool) -> None:
        """End the transaction. Raises Fenced."""
        self._end(self._owned(session), commits=commits)

    def expire(self, name: str) -> None:
        """The transaction of an id lasts too long: it is aborted, and its owner fenced."""
        self.init(name)

    def _owned(self, session: Session) -> Producers:
        known = self.producers[session.name]
        if known.epoch != session.epoch:
            raise Fenced
        return known

    def _end(self, known: Producers, *, commits: bool) -> None:
        for log in known.logs:
            log.end_transaction(known.producer_id, commits=commits)
        known.logs.clear()

    def compact(self, keeps_tombstones: Callable[[], bool]) -> None:
        """A pass of the cleaner over everything that is compacted."""
        for topic in self.topics.values():
            if topic.is_compacted:
                for log in topic.logs:
                    log.compact(keeps_tombstones)
