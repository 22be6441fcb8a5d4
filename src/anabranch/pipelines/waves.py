"""Work of a job in waves of tasks: progress after each, and a note of what is done.

What: `waves` hands items to Spark, some for each core, waits for their answers, and goes on;
`Notes` keeps answers in a file, one line of JSON each, so that a job that was killed goes on behind
what it has. Rules kept: an answer is noted before it is counted; a file of another job is refused;
a line that a kill cut short is dropped; a job that had come to its end begins anew. Why waves: a
task's answer is needed as soon as it is there, and Spark gives none before the last one of its
stage.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_A_CORE = 4
"""A wave's last tasks leave cores idle: with four a core an eighth of the time on average."""
ANSWER = "answer string"


class NotesFault(Exception):
    """The file of notes cannot be used; the text says what to do."""


def waves(
    spark: SparkSession, items: Sequence[Any], work: Callable[[Any], Mapping[str, Any]]
) -> Iterator[list[tuple[Any, dict[str, Any]]]]:
    """Do `work(item)` for each item in tasks of its own; yields (item, answer) wave by wave.

    `work` must be importable by executors, items picklable, answers fit for JSON.
    """
    size = TASKS_A_CORE * max(1, spark.sparkContext.defaultParallelism)
    for first in range(0, len(items), size):
        wave = list(items[first : first + size])
        rows = spark.range(0, len(wave), 1, len(wave)).mapInArrow(_task(wave, work), ANSWER)
        answers = (json.loads(row.answer) for row in rows.collect())
        by_place = dict(answers)
        yield [(item, by_place[place]) for place, item in enumerate(wave)]


def _task(wave: list[Any], work: Callable[[Any], Mapping[str, Any]]) -> Any:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for place in batch.column(0).to_pylist():
                answer = json.dumps([place, dict(work(wave[place]))])
                yield pa.RecordBatch.from_arrays([pa.array([answer])], names=["answer"])

    return run


class Notes:
    """What is done, by name; without a path it is kept nowhere."""

    def __init__(self, path: Path | None, job: Mapping[str, Any]) -> None:
        self.done: dict[str, dict[str, Any]] = {}
        self._file = None
        if path is None:
            return
        kept = self._read(path, dict(job)) if path.exists() else 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._file.truncate(kept)
        if not kept:
            self._write({"job": dict(job)})

    def _read(self, path: Path, job: dict[str, Any]) -> int:
        """Take over what is noted; the bytes of whole lines."""
        kept = 0
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True)):
            try:
                if not line.endswith(b"\n"):
                    if number or _line({"job": job}).startswith(line.decode()):
                        break
                    raise ValueError(line)
                noted = json.loads(line)
                if number == 0 and noted["job"] != json.loads(json.dumps(job)):
                    raise NotesFault(f"{path} is of another job; name another file")
                if "finished" in noted:
                    self.done.clear()
                    return 0
                if number:
                    self.done[noted["name"]] = noted["answer"]
            except (ValueError, KeyError, TypeError):
                where = f"{path}, line {number + 1}"
                raise NotesFault(f"{where}: this is no note of a job; name another file") from None
            kept += len(line)
        return kept

    def note(self, name: str, answer: Mapping[str, Any]) -> None:
        """Something is done."""
        self.done[name] = dict(answer)
        self._write({"name": name, "answer": dict(answer)})

    def finish(self) -> None:
        """The job is at its end: the next one with this file does everything again."""
        self._write({"finished": True})

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(_line(line))
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """No more is noted."""
        if self._file is not None:
            self._file.close()


def _line(note: Mapping[str, Any]) -> str:
    return json.dumps(note) + "\n"


class Pace:
    """How far a job is, as a line for people."""

    def __init__(self, total: int, unit: str, tell: Callable[[str], None]) -> None:
        self._total = total
        self._unit = unit
        self._tell = tell
        self._done = 0
        self._begin = time.monotonic()

    def advance(self, count: int, moved_bytes: int) -> None:
        """So many more are done; so many bytes were moved in all."""
        self._done += count
        seconds = max(time.monotonic() - self._begin, 1e-9)
        left = (self._total - self._done) * seconds / max(1, self._done)
        self._tell(
            f"{self._done:,} of {self._total:,} {self._unit}, {moved_bytes / 1e6:,.0f} MB, "
            f"{moved_bytes / 1e6 / seconds:,.0f} MB/s, some {left:,.0f} s left"
        )
