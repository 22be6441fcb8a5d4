"""`python -m chaos.check FILE…`: what is wrong with what real clients were told.

    lost        acknowledged, and not there when all was read at the end (lost-write, unseen)
    duplicated  one value of an idempotent producer at two offsets, an order with two receipts of a
                group, or a word that Kafka Streams counted twice
    reordered   a producer's records stand in another order than it sent them, or counts of Kafka
                Streams in another one than the words
    mismatched  one offset, two values; or a record elsewhere than its producer was told
    phantom     a value that nobody wrote there
    went back   a reader was shown an older record after a newer one, a member began before what
                its group had committed, a reader stood where the log has no place
    skipped     a reader was not shown a record between two that it was shown, or a group never
                was shown one before what it committed (after its drain: any), or an order has no
                receipt of a group, or a word no count
    beyond      a group committed an offset behind the log's end
    forgotten   a commit was acknowledged and is not in the offsets topic (asked with `--logs`)
    expired     an offset, or a record, was gone before its retention was over
    risen       what was deleted is there again: a key behind its tombstone, a record or an offset
                of a deleted topic, an offset that had expired
    torn        of a transaction a part is there, or the sum of all transfers is not 0
    aborted read  a reader of committed records was shown one that is not committed
    unread      a partition was not read to its end after all faults: nothing can be said of it; or
                a reader that went on reading did not come to an end

The judge is the simulator's (`anabranch.sim.checks`), one partition at a time: memory holds one
partition's history, however long the run. Of a compacted topic an acknowledged record may be gone
when a later one of its key is there. What retention deleted is not missed. Rule kept: what a client
could not know counts for nothing; an outcome that is unknown may be there or not, but once and in
its place. Not here: liveness; equality of replicas (`replicas.py`).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anabranch.core.partition.protocol import ACKS_ALL
from anabranch.core.types import ZERO_TOPIC_ID, TopicId, TopicPartition
from anabranch.sim.checks.anomalies import AUDITOR, Anomalies
from anabranch.sim.checks.commits import Committed
from anabranch.sim.checks.groups import GroupChecks
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.truth import Truth
from anabranch.sim.checks.violation import Violation
from anabranch.sim.history import OK, Assigned, Commit, History, Poll, Send
from chaos import check_commits, check_compacted, check_kept, check_reborn, check_retention
from chaos.check_spool import Spool
from chaos.history import is_tombstone, key_of, parse_place
from chaos.topics import AGED, BOUNDED, REBORN

HEADINGS = {
    "lost-write": "lost",
    "unseen": "lost",
    "duplicate": "duplicated",
    "nonmonotonic-send": "reordered",
    "nonmonotonic-log": "reordered",
    "inconsistent-offsets": "mismatched",
    "phantom": "phantom",
    "G1a": "phantom",
    "nonmonotonic-poll": "went back",
    "group-rewound": "went back",
    "thrown-out": "went back",
    "poll-skip": "skipped",
    "group-skip": "skipped",
    "group-offset": "beyond",
    "group-commit": "forgotten",
    "unread": "unread",
    "stood": "unread",
    "offset-expired": "expired",
    "deleted-early": "expired",
    "offset-stale": "forgotten",
    "offset-risen": "risen",
    "resurrected": "risen",
    "risen": "risen",
    "transaction-lost": "lost",
    "transaction-twice": "duplicated",
    "transaction-torn": "torn",
    "transaction-aborted": "aborted read",
    "transaction-phantom": "phantom",
    "held-back": "unread",
    "not-processed": "skipped",
    "processed-twice": "duplicated",
    "not-counted": "skipped",
    "counted-twice": "duplicated",
    "counted-late": "reordered",
    "count-phantom": "phantom",
}
"""An anomaly's name among the simulator's -> under what it is counted here."""

EXAMPLES = 5
EXAMPLE_CHARACTERS = 500
LATE_COMMIT_US = 120_000_000
"""A commit that nobody confirmed may take effect so long after it: a broker was stopped."""


@dataclass
class Verdict:
    """What was found, and how much was looked at."""

    counts: Counter[str] = field(default_factory=Counter)
    """Anomalies by heading."""
    examples: list[str] = field(default_factory=list)
    sends: int = 0
    acks: int = 0
    seen: int = 0
    """Records that were there at the end."""
    shown: int = 0
    """Records that readers were given, all together."""
    commits: int = 0
    rebalances: int = 0
    longest_gap_ms: float = 0.0
    """Between two acknowledgements, whoever's they are."""
    partitions: int = 0
    compacted: int = 0
    """Acknowledged records that a later one of their key replaced."""
    transactions: int = 0
    """Committed ones that were seen at the end."""
    counted: int = 0
    """Orders and lines that Kafka Streams counted."""
    idle: list[str] = field(default_factory=list)
    """Kinds of clients that did nothing."""
    notes: Counter[str] = field(default_factory=Counter)
    """What clients reported by themselves."""
    _told: Counter[str] = field(default_factory=Counter)

    @property
    def is_clean(self) -> bool:
        """Nothing is wrong, and there was something that could have been."""
        return not self.counts and not self.idle and self.acks > 0

    def report(self, violation: Violation) -> None:
        """Count an anomaly, and keep the first of its kind."""
        self.counts[HEADINGS[violation.id]] += 1
        self._told[violation.id] += 1
        if self._told[violation.id] <= EXAMPLES:
            self.examples.append(str(violation)[:EXAMPLE_CHARACTERS])

    def as_dict(self) -> dict[str, Any]:
        """For a file of JSON."""
        headings = dict.fromkeys(HEADINGS.values(), 0)
        plain = {key: value for key, value in vars(self).items() if not key.startswith("_")}
        counts = {**headings, **self.counts}
        return {**plain, "counts": counts, "notes": dict(self.notes), "is_clean": self.is_clean}

    def lines(self) -> list[str]:
        """For people."""
        counts = self.as_dict()["counts"]
        return [
            f"{self.acks:,} of {self.sends:,} records acknowledged, {self.seen:,} there at the end"
            f" in {self.partitions} partitions ({self.compacted:,} compacted away);"
            f" {self.shown:,} shown to readers, {self.commits:,} commits,"
            f" {self.rebalances:,} rebalances, {self.transactions:,} transactions,"
            f" {self.counted:,} records counted by Kafka Streams;"
            f" longest gap {self.longest_gap_ms / 1000:.1f} s",
            ", ".join(f"{count:,} {name}" for name, count in counts.items()),
            *self.examples,
            *self.idle_lines,
        ]

    @property
    def idle_lines(self) -> list[str]:
        """Kinds of clients of which nothing is proved."""
        return [f"no {part} was acknowledged or shown anything" for part in self.idle]


@dataclass
class Logs:
    """What the judge asks about logs: nothing is allowed to be lost here."""

    places: dict[TopicPartition, Truth]
    marks: Marks = field(default_factory=Marks)

    def truth_of(self, place: TopicPartition, _topic_id: TopicId = ZERO_TOPIC_ID) -> Truth | None:
        """What is known of a partition; topics that are made anew have histories of their own."""
        return self.places.get(place)


class RealAnomalies(Anomalies):
    """The simulator's judge, told which records a compacted log need not have any more."""

    newest: dict[bytes, int] | None = None
    """Of a compacted partition: key -> where its last record stood at the end."""
    _buried: dict[bytes, float] | None = None

    def _check_values(self, by_value: dict[bytes, Send]) -> None:
        """A compacted log must show the last record of each key; the cleaner may take any other
        one away between two readers, the audits too."""
        super()._check_values(by_value)
        if self.newest is not None:
            seen = {value: offsets for (_, value), offsets in self.offsets.items()}
            self._buried = check_compacted.buried(by_value.values(), seen)
            kept = set(self.newest.values())
            for last in self.last.values():
                for offset in [
                    each for each in last if each not in kept or self._fades(last[each])
                ]:
                    del last[offset]

    def _fades(self, name: bytes) -> bool:
        """Whether the cleaner may take a record away although it is the last of its key."""
        return any(
            is_tombstone(place.topic, check_compacted.number_of(name)) for place, _ in self.last
        )

    def _check_acknowledged(self, send: Send) -> None:
        if self.newest is not None:
            n, key = int(send.id), key_of(int(send.id))
            where = (send.place, send.topic_id)
            known = self.offsets.get((where, send.value), [send.offset])
            at, buried = max(send.offset, *known), (self._buried or {}).get(key, -1)
            is_replaced = at < max(self.newest.get(key, -1), buried)
            if is_replaced or is_tombstone(send.place.topic, n):
                self.allowed["compacted"] += 1
                return
        super()._check_acknowledged(send)


class RealGroups(GroupChecks):
    """The simulator's judge of groups: here no network sends a confirmed commit twice, and what is
    written is looked for on the disks (`check_commits`)."""

    def _check_written(self, commit: Committed) -> None:
        pass

    def _floor(self, event: Assigned, place: TopicPartition) -> int:
        commits = self._commits.get((event.group, place), [])
        done = [commit.offset for commit in commits if commit.ok]
        after = event.at_us - LATE_COMMIT_US
        late = [each.offset for each in commits if not each.ok and each.at_us > after]
        return min(done[-1], *late) if done and late else done[-1] if done else -1


class PlaceJudge:
    """One partition's history, read from its lines and judged."""

    def __init__(self, at: str, verdict: Verdict, events: Sequence[Mapping[str, Any]] = ()) -> None:
        self.place = TopicPartition(*parse_place(at))
        self.clocks = [each for each in events if each["op"] == "clock"]
        born = [e for e in events if e["op"] == "reborn" and e["topic"] == self.place.topic]
        self.birth = born[-1] if born else None
        """When the topic was made again for the last time."""
        self.former: set[bytes] = set()
        """Records whose producers knew a topic that was deleted."""
        self.starts: list[tuple[int, int]] = []
        self.audits: dict[str, tuple[int, int]] = {}
        """When each audit began and ended."""
        self.stood: list[dict[str, Any]] = []
        self.verdict = verdict
        self.history = History()
        self.truth = Truth((b"", self.place.partition))
        self.logs = Logs({self.place: self.truth})
        self.sends: dict[tuple[str, int], Send] = {}
        self.names: dict[tuple[str, int], bytes] = {}
        self.shown: dict[str, set[int]] = defaultdict(set)
        """Group -> offsets that it was shown."""
        self.committed: dict[str, int] = {}
        self.thrown: list[dict[str, Any]] = []
        self.is_compacted = False
        self.is_read = False
        self.turns = 0

    def judge(self, lines: list[dict[str, Any]], drained: Iterable[str]) -> None:
        """Everything about this partition; `drained` are groups that must have read all of it."""
        takes = {
            "send": self._send, "ok": self._ok, "poll": self._poll, "assigned": self._assigned,
            "commit": self._commit, "ends": self._ends, "thrown": self.thrown.append,
            "start": self._start, "stood": self.stood.append,
        }  # fmt: skip
        if self.place.topic in REBORN:
            lines = [line for line in lines if check_reborn.is_of_the_audits(line)]
            drained = ()  # what groups were shown may be of a topic that was deleted
        for line in sorted(lines, key=lambda line: line["t"]):
            take = takes.get(line["op"])
            if take is not None:
                take(line)
        report = self.verdict.report
        if not self.is_read:
            report(Violation("unread", "Not read to the end.", {"partition": self.place}))
            return
        if self.birth is not None:
            for found in check_reborn.risen(self.history.sends, self.history.polls, self.birth):
                report(found)
            self.former = check_reborn.forget_former(self.history.sends, self.birth)
        anomalies = RealAnomalies(self.history, self.logs, report)  # type: ignore[arg-type]
        self._note_newest(anomalies)
        anomalies.check()
        self.verdict.seen += self._check_order_of_log()
        self._check_groups(anomalies.last.get((self.place, ZERO_TOPIC_ID), {}), drained)
        self._check_thrown()
        self._check_retention()
        self._check_compacted()
        for line in self.stood:
            told = {key: line[key] for key in ("client", "at", "position", "end")}
            report(Violation("stood", "A reader did not come to the end of a log.", told))
        self.verdict.compacted += anomalies.allowed["compacted"]

    # What was written down.

    def _value(self, client: str, n: int) -> bytes:
        """A short name that stands for a value; one object a value."""
        name = self.names.get((client, n))
        if name is None:
            name = self.names[client, n] = f"{client}:{n}".encode()
        return name

    def _send(self, line: dict[str, Any]) -> None:
        client, t = line["client"], line["t"]
        for n in range(line["n"], line["n"] + line["count"]):
            value = self._value(client, n)
            send = Send(str(n), client, self.place, value, ACKS_ALL, True, t)
            self.sends[client, n] = send
            self.history.add(send)
        self.verdict.sends += line["count"]

    def _ok(self, line: dict[str, Any]) -> None:
        client, offset = line["client"], line["offset"]
        for index in range(line["count"]):
            send = self.sends[client, line["n"] + index]
            send.outcome, send.completed_us = OK, line["t"]
            send.offset = offset + index if offset >= 0 else -1
        self.verdict.acks += line["count"]

    def _poll(self, line: dict[str, Any]) -> None:
        records = [
            (offset + index, self._value(client, n + index))
            for offset, client, n, count in line["runs"]
            for index in range(count)
        ]
        if line["odd"]:
            records += [(offset, b"odd:" + text.encode()) for offset, text in line["odd"]]
            records.sort()
        poll = Poll(line["client"], self.place, line["t"], line["position"], records, 0)
        self.history.add(poll)
        self.verdict.shown += len(records)
        if line["group"]:
            self.shown[line["group"]].update(offset for offset, _ in records)

    def _assigned(self, line: dict[str, Any]) -> None:
        self.turns += 1  # what clients tell has no generation: each one counts as its own
        told = (line["group"], line["client"], self.turns, (self.place,), line["t"])
        self.history.add(Assigned(*told))

    def _commit(self, line: dict[str, Any]) -> None:
        group, offset = line["group"], line["offset"]
        self.history.add(Commit(group, self.place, offset, line["ok"], line["t"]))
        if line["ok"]:
            self.committed[group] = max(offset, self.committed.get(group, 0))
        self.verdict.commits += 1

    def _ends(self, line: dict[str, Any]) -> None:
        self.truth.deleted_to = max(self.truth.deleted_to, line["start"])
        self.truth.peak = max(self.truth.peak, line["end"])
        self.is_compacted = line["compacted"]
        self._start(line)
        client, at = line["client"], line["t"]
        first, _ = self.audits.get(client, (line.get("began", at), at))
        self.audits[client] = (first, at)
        self.is_read = self.is_read or line["whole"]

    def _start(self, line: dict[str, Any]) -> None:
        self.starts.append((line["t"], line["start"]))

    # What the simulator's judge does not look at.

    def _check_retention(self) -> None:
        ms = AGED.get(self.place.topic)
        if ms is None:
            return
        told = self.history.sends, ms, self.clocks
        for violation in (
            *check_retention.deleted_early(told[0], self.starts, *told[1:]),
            *check_retention.skipped(self.history.polls, *told),
        ):
            self.verdict.report(violation)

    def _check_compacted(self) -> None:
        if not self.is_compacted:
            return
        audits = (poll for poll in self.history.polls if poll.client.startswith(AUDITOR))
        for violation in check_compacted.resurrected(audits, self.audits, self.history.sends):
            self.verdict.report(violation)

    def _note_newest(self, anomalies: RealAnomalies) -> None:
        if not self.is_compacted:
            return
        newest: dict[bytes, int] = {}
        for poll in self.history.polls:
            if poll.client.startswith(AUDITOR):
                for offset, value in poll.records:
                    number = value.rpartition(b":")[2]
                    if number.isdigit():
                        key = key_of(int(number))
                        newest[key] = max(offset, newest.get(key, -1))
        anomalies.newest = newest

    def _check_order_of_log(self) -> int:
        """Also records of unknown outcome stand in the order of their sequence numbers. Returns
        how many records there were at the end."""
        newest: dict[bytes, int] = {}
        audits = (poll.records for poll in self.history.polls if poll.client.startswith(AUDITOR))
        last = dict(record for records in audits for record in records)
        for offset in sorted(last):
            client, _, number = last[offset].rpartition(b":")
            n = int(number) if number.isdigit() else -1
            before = newest.get(client, -1)
            if last[offset] in self.former:
                continue
            if -1 < n < before:
                sentence = "A producer's later record stands before an earlier one."
                told = {"partition": self.place, "client": client, "offset": offset}
                told |= {"record": n, "before": before}
                self.verdict.report(Violation("nonmonotonic-log", sentence, told))
            newest[client] = max(n, before)
        return len(last)

    def _check_groups(self, last: dict[int, bytes], drained: Iterable[str]) -> None:
        groups = RealGroups(self.logs, Marks())  # type: ignore[arg-type]
        takes = {Assigned: groups.assigned, Commit: groups.committed, Poll: groups.polled}
        for event in self.history.fresh:
            try:
                takes[type(event)](event)  # type: ignore[operator]
            except Violation as violation:
                self.verdict.report(violation)
        upto = dict(self.committed) | dict.fromkeys(drained, self.truth.peak)
        for group, end in upto.items():
            missing = [offset for offset in last.keys() - self.shown[group] if offset < end]
            for offset in missing:
                told = {"group": group, "partition": self.place, "offset": offset, "read_to": end}
                sentence = "A group was never shown a record."
                self.verdict.report(Violation("group-skip", sentence, told))

    def _check_thrown(self) -> None:
        """A reader may stand nowhere only where retention deleted what it stood at."""
        for line in self.thrown:
            if line["position"] >= self.truth.deleted_to:
                told = {key: line[key] for key in ("client", "at", "position", "why")}
                sentence = "A reader stood at a place that its log does not have."
                self.verdict.report(Violation("thrown-out", sentence, told))


def judge(paths: Iterable[Path], logs: Iterable[Path] = (), scratch: Path | None = None) -> Verdict:
    """Judge all histories of one run, and what the log folders of all nodes keep of its groups,
    when they are given. `scratch` is where a copy by partition may lie meanwhile."""
    verdict = Verdict()
    histories, folders = sorted(paths), list(logs)
    with TemporaryDirectory(dir=scratch) as folder:
        spool = Spool(Path(folder))
        for path in histories:
            spool.add(path)
        verdict.notes, verdict.rebalances = spool.notes, spool.assignments
        verdict.longest_gap_ms, verdict.idle = spool.longest_gap_ms(), spool.idle()
        verdict.partitions = len(spool.places)
        for at in sorted(spool.places):
            drained = spool.drained(parse_place(at).topic)
            PlaceJudge(at, verdict, spool.events).judge(spool.lines(at), drained)
        verdict.transactions = spool.transactions.count
        verdict.counted = spool.transactions.counted
        for violation in (
            *check_kept.judge(spool.kept, spool.events),
            *spool.transactions.judge(),
        ):
            verdict.report(violation)
    if folders:
        for violation in (
            *check_commits.judge(histories, folders),
            *check_retention.too_short(folders, BOUNDED),
        ):
            verdict.report(violation)
    return verdict


def main() -> int:
    """Judge, say it, and write it down; 1 when something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m chaos.check")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="all of one run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdict there")
    said = "the log folders of all nodes, which were stopped in order"
    parser.add_argument("--logs", nargs="+", type=Path, default=(), metavar="FOLDER", help=said)
    arguments = parser.parse_args()
    verdict = judge(arguments.files, arguments.logs)
    if arguments.json:
        arguments.json.write_text(json.dumps(verdict.as_dict(), indent=2) + "\n")
    print("\n".join(verdict.lines()))
    return 0 if verdict.is_clean else 1


if __name__ == "__main__":
    raise SystemExit(main())
