"""The sink of the job `tables`: rows to Parquet files, and files to Delta tables, once.

What: a task writes the rows that fit into one file of the table and the others into one of the
table of dead letters; the driver's commit adds the files of all tasks to each table in one
transaction, with the query's name and the micro-batch's number. Rule kept: a table that has that
transaction already is left alone, so that a micro-batch that is run again counts once; files that
no transaction names are not part of a table; a micro-batch with fields that the table lacks adds
them and nothing else, and is run again. Not here: what fits (tables.py).
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.fields import MOST_FIELDS, Fields, fields_of, merged, settled
from anabranch.pipelines.table_schema import add_fields, plain, sentence_of

FORMAT = "anabranch-table"
REASON = "_reason"
"""The column that says why a row is a dead letter; null for the rows that fit."""
FITS, DEAD = "fits", "dead"
"""The two struct columns of a row: what the table gets, and what the dead letters get."""
MORE = "_more"
"""The column with the text of a record that fits and has fields which the schema lacks."""


class Added(NamedTuple):
    """A file that a task wrote."""

    name: str
    size_bytes: int
    rows: int


@dataclass
class Files(WriterCommitMessage):
    """What a task wrote, for the table and for the dead letters, and the fields it found."""

    fits: list[Added] = field(default_factory=list)
    dead: list[Added] = field(default_factory=list)
    more: Fields = field(default_factory=dict)


class FieldsAdded(Exception):
    """The table has got columns; the micro-batch is to be run again, by the new schema."""


class TableWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches into two tables, each of them exactly once."""

    def __init__(self, table: str, dead_letters: str, application: str) -> None:
        self._table = table
        self._dead_letters = dead_letters
        self._application = application

    def write(self, iterator: Iterator[Any]) -> Files:
        """In a task: at most one file for each table."""
        fits, dead = _File(self._table), _File(self._dead_letters)
        more: Fields = {}
        for batch in iterator:
            rows = pa.Table.from_batches([batch])
            if len(more) <= MOST_FIELDS:  # beyond, the table does not take them
                more = merged(more, _more(rows))
            is_dead = rows.column(REASON).is_valid()
            fits.write(_fields(rows.filter(pa.compute.invert(is_dead)), FITS))
            dead.write(_fields(rows.filter(is_dead), DEAD))
        return Files(fits.close(), dead.close(), more)

    def commit(
        self, messages: Sequence[WriterCommitMessage | None], batchId: int  # noqa: N803
    ) -> None:  # fmt: skip
        """On the driver: add the files to the tables that do not have this micro-batch yet.

        Raises FieldsAdded, and adds no file, where records have fields that are to be columns.
        """
        done = [each for each in messages if isinstance(each, Files)]
        self._grow(done)
        add_once(self._table, [a for each in done for a in each.fits], self._application, batchId)
        add_once(
            self._dead_letters, [a for each in done for a in each.dead], self._application, batchId
        )

    def _grow(self, done: Sequence[Files]) -> None:
        found = settled(reduce(merged, (each.more for each in done), {}))
        if not found:
            return
        add_fields(self._table, found)
        for each in done:
            _remove(self._table, each.fits)
            _remove(self._dead_letters, each.dead)
        raise FieldsAdded(f"The table {self._table} has new fields: {sentence_of(found)}.")

    def abort(
        self, messages: Sequence[WriterCommitMessage | None], batchId: int  # noqa: N803
    ) -> None:  # fmt: skip
        """On the driver: nothing. Spark calls this also when one of the two commits was done, so
        that a file may belong to a table; one that does not goes with the next vacuum."""


class TableSource(DataSource):
    """How Spark finds the sink, once the job has registered it."""

    @classmethod
    def name(cls) -> str:
        """The word that `format` takes."""
        return FORMAT

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """The writer of one query."""
        options = self.options
        return TableWriter(options["table"], options["deadLetters"], options["application"])


class _File:
    """A Parquet file that begins with its first row."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / f"part-{uuid.uuid4()}.parquet"
        self._writer: Any = None
        self._rows = 0

    def write(self, rows: Any) -> None:
        if not rows.num_rows:
            return
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, rows.schema, compression="zstd")
        self._writer.write_table(rows)
        self._rows += rows.num_rows

    def close(self) -> list[Added]:
        if self._writer is None:
            return []
        self._writer.close()
        return [Added(self._path.name, os.path.getsize(self._path), self._rows)]


def _fields(rows: Any, name: str) -> Any:
    """The fields of a struct column as columns."""
    struct = rows.column(name).combine_chunks()
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(struct)])


def _more(rows: Any) -> Fields:
    """The fields of records that are not among those of the schema. Spark hands on text that is no
    UTF-8, and reads what is wrong in it as U+FFFD."""
    known = {each.name for each in rows.schema.field(FITS).type}
    texts = rows.column(MORE).drop_null().cast(pa.large_binary()).to_pylist()
    return reduce(merged, (fields_of(text.decode(errors="replace"), known) for text in texts), {})


def _remove(folder: str, files: Iterable[Added]) -> None:
    for each in files:
        (Path(folder) / each.name).unlink(missing_ok=True)


def add_once(table: str, files: Sequence[Added], application: str, number: int) -> bool:
    """Add files to a table in the transaction `number` of an application, unless it has it.

    Files of a transaction that it has are removed. Returns whether they were added. Raises
    PipelineFault for a table that is gone, or that another process adds the same transaction to.
    """
    from deltalake.exceptions import DeltaError

    try:
        return bool(files) and _add_once(table, files, application, number)
    except DeltaError as fault:
        raise PipelineFault(
            f"Micro-batch {number} was not added to the table {table}: {plain(fault)}. Check that "
            "the table is there, and that no other process runs with this checkpoint; then run the "
            "job again."
        ) from None


def _add_once(table: str, files: Sequence[Added], application: str, number: int) -> bool:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import AddAction

    known = DeltaTable(table)
    last = known.transaction_version(application)
    if last is not None and last >= number:
        _remove(table, files)
        return False
    now_ms = int(time.time() * 1000)
    actions = [
        AddAction(
            each.name, each.size_bytes, {}, now_ms, True, json.dumps({"numRecords": each.rows})
        )
        for each in files
    ]
    known.create_write_transaction(
        actions, "append", known.schema(),
        commit_properties=CommitProperties(
            app_transactions=[Transaction(application, number)], custom_metadata={}
        ),
    )  # fmt: skip
    return True
