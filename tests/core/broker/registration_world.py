"""A broker's registration against a real controller: no network, no clock, each answer at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.core.controller.world import CLUSTER, World

from anabranch.core.broker.registration.events import (
    Answered,
    Ask,
    MetadataMoved,
    Unanswered,
)
from anabranch.core.broker.registration.registration import Registration, Times
from anabranch.core.broker.registration.requests import Identity
from anabranch.core.metadata.image import MetadataImage

FOLDERS = {"/a": b"a" * 16, "/b": b"b" * 16}


class Shell:
    """Performs one registration's effects on a controller, or loses them."""

    def __init__(self, world: World, *, incarnation: int = 1, **changes: Any) -> None:
        self.world = world
        self.standing = SimpleNamespace(
            image=MetadataImage.empty(),
            partitions=SimpleNamespace(offline_folders=set(), full_folders=set()),
        )
        identity = Identity(
            node_id=changes.pop("node_id", 1),
            cluster_id=CLUSTER,
            incarnation_id=bytes([incarnation]) * 16,
            directories=changes.pop("directories", FOLDERS),
            endpoints=[("PLAINTEXT", f"host-{incarnation}", 9092)],
        )
        times = changes.pop("times", Times())
        self.machine = Registration(identity, self.standing, times, **changes)
        self.is_cut_off = False
        self.waiting: list[Ask] = []
        self.sent: list[Any] = []
        self.done: list[Any] = []

    def step(self, event: Any) -> None:
        """One event, and everything that follows from it at once."""
        self.machine.step(event, self.world.now_ms)
        self.perform()

    def perform(self) -> None:
        """Do what is wanted until nothing more is."""
        while effects := self.machine.take_effects():
            for effect in effects:
                if not isinstance(effect, Ask):
                    self.done.append(effect)
                    continue
                self.sent.append(effect.request)
                if self.is_cut_off:
                    self.waiting.append(effect)
                else:
                    answer = self.world.ask(effect.request)
                    self.machine.step(Answered(effect, answer), self.world.now_ms)

    def read(self) -> None:
        """Act on everything that is committed."""
        self.standing.image = self.world.image
        self.step(MetadataMoved())

    def lose(self) -> None:
        """Nobody answered what is under way."""
        waiting, self.waiting = self.waiting, []
        for ask in waiting:
            self.step(Unanswered(ask, "cut off"))

    def pass_time(self, ms: int, *, reads: bool = True) -> None:
        """Let time go by; the broker acts on the metadata as it comes."""
        end_ms = self.world.now_ms + ms
        while (due_ms := self.machine.next_tick_ms) <= end_ms:
            self.world.now_ms = max(due_ms, self.world.now_ms)
            self.machine.tick(self.world.now_ms)
            self.perform()
            if reads:
                self.read()
        self.world.now_ms = max(self.world.now_ms, end_ms)

    def of(self, kind: type) -> list[Any]:
        """The effects of one kind that were done, and the requests of one kind that were sent."""
        return [each for each in (*self.done, *self.sent) if isinstance(each, kind)]

    @property
    def registered(self) -> Any:
        """This node as the controller knows it."""
        return self.world.image.brokers.get(self.machine.identity.node_id)
