"""What a run amounts to: counts, and everything that must not be.

What: the figures of each part, their sum, and whether the run counts (as many acknowledgements,
elections, truncations and changes of the lease as the promise asks for). Rule kept: a run is clean
only when the judge of histories, the comparison of replicas, the nodes' logs and all processes have
nothing to say. Not here: how any of it was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos.check import Verdict
from chaos.diskless import Settled
from chaos.replicas import Comparison
from chaos.streams import Figures

LEAST = {"acks": 1_000_000, "elections": 50, "truncations": 10, "lease changes": 5}
"""What a run must reach to count as a proof."""
SHOWN = 20


@dataclass
class PartReport:
    """One cluster's life."""

    store: str
    config: dict[str, str]
    seconds: float = 0.0
    rounds: int = 0
    elections: int = 0
    unclean_elections: int = 0
    last_known: int = 0
    """Elections of a last known leader: nobody who was in sync had ended in order."""
    truncations: int = 0
    lease_changes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    healing_s: list[float] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    bugs: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """What is no fault of ours and should be known."""
    sentences: Counter[str] = field(default_factory=Counter)
    verdict: Verdict = field(default_factory=Verdict)
    """What the judge of histories says."""
    compared: Comparison = field(default_factory=Comparison)
    diskless: Settled = field(default_factory=Settled)
    streams: Figures = field(default_factory=Figures)

    @property
    def acks(self) -> int:
        """Records that producers were told are there."""
        return self.verdict.acks

    @property
    def complaints(self) -> list[str]:
        """Everything that must not be, a line each."""
        found = [f"{name}: {count:,}" for name, count in self.verdict.counts.items()]
        if not self.acks:
            found.append("nothing was acknowledged")
        if self.unclean_elections:
            found.append(f"{self.unclean_elections} unclean elections")
        return [
            *found,
            *self.verdict.examples[:SHOWN],
            *self.verdict.idle_lines,
            *(f"replicas differ: {each}" for each in self.compared.differences[:SHOWN]),
            *(f"diskless: {each}" for each in self.diskless.findings[:SHOWN]),
            *self.surprises[:SHOWN],
            *(f"in a log: {each}" for each in self.bugs[:SHOWN]),
        ]

    def lines(self) -> list[str]:
        """For people."""
        faults = ", ".join(f"{name} {count}" for name, count in self.faults.most_common())
        healing = sorted(self.healing_s) or [0.0]
        gap_s = self.verdict.longest_gap_ms / 1000
        return [
            f"{self.store}: {self.seconds:.0f} s, {self.rounds} rounds, "
            f"{self.faults.total()} faults: {faults}",
            f"  {self.acks:,} acks, {self.elections} elections ({self.last_known} of a last known "
            f"leader), {self.truncations} truncations, {self.lease_changes} lease changes",
            f"  longest time without an acknowledgement {gap_s:.1f} s; whole after "
            f"healing in {healing[len(healing) // 2]:.1f} s (median), {healing[-1]:.1f} s at most",
            f"  {self.compared.line()}",
            f"  {self.diskless.line()}",
            f"  {self.streams.line()}",
            *(f"  REMARK Kafka Streams replaced a thread: {why}" for why in self.streams.replaced),
            *(f"  {count:>6} x {said}" for said, count in self.sentences.most_common(8)),
            *(f"  REMARK {each}" for each in self.remarks),
            *(f"  ANOMALY {each}" for each in self.complaints),
        ]

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            **vars(self),
            "verdict": self.verdict.as_dict(),
            "compared": vars(self.compared),
            "diskless": self.diskless._asdict(),
            "streams": self.streams._asdict(),
        }


@dataclass
class Report:
    """All parts of a run."""

    seed: int
    commit: str
    parts: Sequence[PartReport]

    @property
    def totals(self) -> dict[str, int]:
        """The figures that decide whether a run counts."""
        return {
            "acks": sum(each.acks for each in self.parts),
            "elections": sum(each.elections for each in self.parts),
            "truncations": sum(each.truncations for each in self.parts),
            "lease changes": sum(each.lease_changes for each in self.parts),
        }

    @property
    def missing(self) -> dict[str, int]:
        """What is less than a proof needs."""
        totals = self.totals
        return {name: totals[name] for name, least in LEAST.items() if totals[name] < least}

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not any(each.complaints for each in self.parts)

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "seed": self.seed,
            "commit": self.commit,
            "clean": self.is_clean,
            "counts": not self.missing,
            **self.totals,
            "parts": [each.as_dict() for each in self.parts],
        }

    def text(self) -> str:
        """For people; each part's lines were said when it was over."""
        totals = ", ".join(f"{count:,} {name}" for name, count in self.totals.items())
        short = ", ".join(f"{LEAST[name]:,} {name}" for name in self.missing)
        counts = f"below the {short} that a proof needs" if short else "a proof by its counts"
        verdict = "nothing lost, duplicated or reordered" if self.is_clean else "ANOMALIES"
        head = f"chaos, seed {self.seed}, commit {self.commit}: {verdict}"
        return f"{head}\n{totals} ({counts})"
