"""The loop: pick an input, change it, run it, keep it when it reached something new.

What: one process, one seed a round, targets by their share. An input that breaks a rule is made
smaller, kept under the name of what it broke, and the loop goes on. Rule kept: counts are saved
every few seconds, so that a total can be continued by the next run. Not here: what an input is.
"""

from __future__ import annotations

import gc
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from fuzz import coverage, store
from fuzz.target import Target
from fuzz.verdict import Broken, TooSlow

SLOWEST_S = 1.0
"""CPU that one input may take; the slowest sound ones take some milliseconds."""
TICK_S = 0.25
ROUND = 64
"""Inputs of one target before the next is chosen."""
SAVE_EVERY_S = 10.0
MOST_MEMORY_BYTES = 4 << 30
FRESH_CHANCE = 0.04
RECENT = 64
"""So many of the newest inputs are chosen half of the time."""
SMALLER_RUNS = 300
MOST_BYTES = 1 << 16
"""Larger inputs cost more than they show."""


class Watch:
    """Ends an input that takes too long, by a timer of CPU time."""

    def __init__(self) -> None:
        self.ticks = 0
        self.on = False

    def start(self) -> None:
        """Begin to tick."""
        signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, TICK_S, TICK_S)

    def stop(self) -> None:
        """Tick no more."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _tick(self, *_: Any) -> None:
        self.ticks += 1
        if self.on and self.ticks * TICK_S > SLOWEST_S:
            self.on = False
            raise TooSlow(f"an input takes less than {SLOWEST_S} s of CPU")


def name_of(target: Target, fault: BaseException) -> str:
    """What a fault is called: equal names are one finding."""
    frames = traceback.extract_tb(fault.__traceback__)
    ours = [each for each in frames if "/anabranch/" in each.filename] or list(frames)
    last = ours[-1]
    place = f"{Path(last.filename).name}:{last.name}"
    if isinstance(fault, Broken):
        return f"{target.name}:{fault}"
    if isinstance(fault, TooSlow):
        return f"{target.name}:too slow"
    return f"{target.name}:{type(fault).__name__} in {place}"


class Fuzzer:
    """One run over some targets."""

    def __init__(self, targets: Iterable[Target], *, seed: int, cache: Path = store.CACHE) -> None:
        self.targets = list(targets)
        self.rng = Random(seed)
        self.cache = cache
        self.coverage = coverage.Coverage()
        self.watch = Watch()
        self.corpus: dict[str, list[bytes]] = {}
        self.costs: dict[bytes, float] = {}
        self.findings: Counter[str] = Counter()
        self.inputs: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.slowest_s = 0.0
        self.stopping = False
        self._commit = store.commit()
        self._before = store.load_counts(cache)

    # One input.

    def run(self, target: Target, entry: bytes) -> set[Any] | None:
        """Its features, or None when it broke a rule."""
        self.watch.ticks, self.watch.on = 0, True
        try:
            features = target.run(entry)
            self.watch.on = False
        except KeyboardInterrupt:
            raise
        except BaseException as fault:
            self.watch.on = False
            self._found(target, entry, fault)
            return None
        return features

    def fails_as(self, target: Target, entry: bytes) -> str:
        """The name of what an input breaks, '' when it breaks nothing."""
        self.watch.ticks, self.watch.on = 0, True
        try:
            target.run(entry)
        except KeyboardInterrupt:
            raise
        except BaseException as fault:
            return name_of(target, fault)
        finally:
            self.watch.on = False
        return ""

    def _found(self, target: Target, entry: bytes, fault: BaseException) -> None:
        name = name_of(target, fault)
        self.findings[name] += 1
        if self.findings[name] > 1:
            return
        text = "".join(traceback.format_exception(fault))
        if self.fails_as(target, entry) != name:
            name, text = f"{name} (once only)", text + "\nit did not happen again"
        else:
            entry = self.smaller(target, entry, name)
        path = store.save_finding(self.cache, name, entry, f"{name}\n{text}")
        print(f"BROKEN {name}\n  {path}", flush=True)

    def smaller(self, target: Target, entry: bytes, name: str) -> bytes:
        """An input with fewer parts, then fewer bytes, that breaks the same rule."""
        left = SMALLER_RUNS
        parts = target.parts(entry)
        index = 0
        while index < len(parts) > 1 and left:
            fewer = parts[:index] + parts[index + 1 :]
            left -= 1
            if self.fails_as(target, b"".join(fewer)) == name:
                parts = fewer
            else:
                index += 1
        return b"".join(parts)

    # Many inputs.

    def load(self, target: Target) -> None:
        """Run what is known, and keep it as the beginning."""
        entries = []
        for entry in [*target.seeds(), *store.known(target.name, self.cache)]:
            if len(entry) > MOST_BYTES:
                continue
            began = time.process_time()
            features = self.run(target, entry)
            if features is not None:
                self.costs[entry] = time.process_time() - began
                self.coverage.news(features)
                entries.append(entry)
        self.corpus[target.name] = entries

    def choose(self, held: list[bytes]) -> bytes:
        """An input of the corpus: the newest more often, and the cheaper one of two."""
        if len(held) > RECENT and self.rng.random() < 0.3:
            at = len(held) - RECENT
            pair = held[at + self.rng.randrange(RECENT)], held[at + self.rng.randrange(RECENT)]
        else:
            pair = self.rng.choice(held), self.rng.choice(held)
        return min(pair, key=self.cost)

    def cost(self, entry: bytes) -> float:
        """CPU seconds that an input of the corpus took when it was found."""
        return self.costs.get(entry, 0.0)

    def round(self, target: Target) -> None:
        """Some inputs of one target."""
        held, rng = self.corpus[target.name], self.rng
        began, requests = time.process_time(), 0
        for _ in range(ROUND):
            if len(held) < 8 or rng.random() < FRESH_CHANCE:
                entry = target.make(rng)
            else:
                entry = target.change(rng, self.choose(held), rng.choice(held))[:MOST_BYTES]
            requests += target.steps(entry)
            started = time.process_time()
            features = self.run(target, entry)
            if features is not None and self.coverage.news(features):
                self.costs[entry] = time.process_time() - started
                held.append(entry)
                store.append(self.cache / f"{target.name}.b64", entry)
            if self.watch.ticks:
                self.slowest_s = max(self.slowest_s, self.watch.ticks * TICK_S)
        self.inputs[target.name] += ROUND
        self.requests[target.name] += requests
        self.seconds[target.name] += time.process_time() - began  # type: ignore[assignment]

    def go(self, seconds: float | None, most_inputs: int | None = None) -> None:
        """Fuzz until the time or the inputs are over, or until somebody stops it."""
        self._prepare()
        shares = [target.share for target in self.targets]
        until = None if seconds is None else time.monotonic() + seconds
        save_at = told_at = time.monotonic()
        while not self.stopping and (until is None or time.monotonic() < until):
            if most_inputs is not None and sum(self.inputs.values()) >= most_inputs:
                break
            self.round(self.rng.choices(self.targets, shares)[0])
            now = time.monotonic()
            if now >= save_at + SAVE_EVERY_S:
                save_at = now
                self.save()
            if now >= told_at + 60:
                told_at = now
                print(self.line(), flush=True)
        self.watch.stop()
        self.save()

    def _prepare(self) -> None:
        if self.cache == store.CACHE:
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, hard))
        self.watch.start()
        for target in self.targets:
            self.load(target)
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)

    # Telling.

    def line(self) -> str:
        """Where the run is, in a line."""
        inputs, cpu_s = sum(self.inputs.values()), max(sum(self.seconds.values()), 1e-9)
        corpus = sum(map(len, self.corpus.values()))
        return (
            f"{inputs:,} inputs ({sum(self.requests.values()):,} requests), "
            f"{inputs / cpu_s:,.0f} inputs a CPU second, corpus {corpus:,}, "
            f"{self.coverage.reached:,} of {len(coverage.PLACES):,} branches, "
            f"{len(self.coverage.features):,} features, {len(self.findings)} findings"
        )

    def total(self) -> dict[str, Any]:
        """The counts of earlier runs with this one's."""
        counts = {commit: dict(targets) for commit, targets in self._before.items()}
        here = counts.setdefault(self._commit, {})
        for name in self.inputs:
            was = here.get(name, {"inputs": 0, "requests": 0, "cpu_seconds": 0.0})
            here[name] = {
                "inputs": was["inputs"] + self.inputs[name],
                "requests": was["requests"] + self.requests[name],
                "cpu_seconds": round(was["cpu_seconds"] + self.seconds[name], 1),
            }
        return counts

    def save(self) -> None:
        """Keep the counts for the next run."""
        store.save_counts(self.cache, self.total())

    def stop(self, *_: Any) -> None:
        """End after the round that is running."""
        self.stopping = True
