"""The job `tables`: JSON records of a topic as rows of a Delta table, each exactly once."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
import sys
import time
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.pipelines.standalone import end

from anabranch.cli import spark as cli_spark
from anabranch.cli.main import main
from anabranch.core.wire.records import Record, build_batch
from anabranch.pipelines import session
from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.fields import MOST_FIELDS
from anabranch.pipelines.table_schema import PLACE, add_fields, prepare, schema_of_table
from anabranch.pipelines.table_sink import (
    DEAD,
    FITS,
    MORE,
    REASON,
    Added,
    Files,
    TableWriter,
    add_once,
)
from anabranch.pipelines.tables import IDENTITY, TableJob, counted, keep_table

SCHEMA = "id bigint, name string, delay double"


@pytest.fixture
def write_json(topics):
    """Append values to a topic; what is not bytes is written as JSON."""

    def written(topic, *values):
        records = [
            Record(
                at,
                1_700_000_000_000,
                b"k",
                each if each is None or isinstance(each, bytes) else json.dumps(each).encode(),
            )
            for at, each in enumerate(values)
        ]
        topics.produce(topic, 0, build_batch(records))

    return written


@pytest.fixture
def job(topics, tmp_path):
    """A job on a new topic."""

    def made(**more):
        return TableJob(**{
            "bootstrap_servers": topics.bootstrap, "topic": topics.create(),
            "table": str(tmp_path / "table"), "schema": SCHEMA, **more,
        })  # fmt: skip

    return made


def run(spark, job):
    keep_table(spark, job).awaitTermination()
    return counted(job)


def rows(path, *names):
    table = DeltaTable(path).to_pyarrow_table().select(names).to_pylist()
    return sorted((tuple(each.values()) for each in table), key=str)


def test_rows_that_fit_and_dead_letters_with_their_reasons(spark, job, write_json):
    one = job()
    write_json(
        one.topic, {"id": 1, "name": "a", "delay": 0.5}, b"{not json", None, {"id": "x", "delay": []},
        [1], {"name": None, "more": 1}, b"7",
    )  # fmt: skip
    done = run(spark, one)
    assert (done.rows, done.dead_letters) == (2, 5)
    assert rows(one.table, "id", "name", "delay", "_partition", "_offset") == [
        (1, "a", 0.5, 0, 0), (None, None, None, 0, 5)
    ]  # fmt: skip
    assert rows(f"{one.table}-dead-letters", "_offset", "value", "reason") == [
        (1, b"{not json", "the value is not JSON"),
        (2, None, "the value is null"),
        (3, b'{"id": "x", "delay": []}', "does not fit: id (bigint), delay (double)"),
        (4, b"[1]", "the value is no object but ARRAY<BIGINT>"),
        (6, b"7", "the value is no object but BIGINT"),
    ]


@pytest.mark.slow
def test_what_follows_a_document_makes_a_dead_letter(spark, job, write_json):
    """Spark alone takes the first document, and drops the rest."""
    one = job()
    first = b'{"id": 5}'
    behind = random.Random(5).choices(b' ]},{[":1\n\0/', k=3 * 200)
    ends = [bytes(behind[at : at + 3]) for at in range(0, len(behind), 3)]
    ends += [b"", b'\n{"id": 6}', b"]", b"}", b"\0", b',"end":1}', b"],{}", b'],"end":1}', b"//c"]
    write_json(one.topic, *(first + each for each in ends))
    whole = [at for at, each in enumerate(ends) if not each.strip(b" \n")]
    done = run(spark, one)
    assert rows(one.table, "_offset") == sorted(((at,) for at in whole), key=str)
    assert done.dead_letters == len(ends) - len(whole)
    reasons = {reason for (reason,) in rows(f"{one.table}-dead-letters", "reason")}
    assert reasons == {"the value goes on behind its first JSON document"}


@pytest.mark.slow
def test_numbers_and_keys_are_kept_or_told_as_the_page_says(spark, job, write_json):
    one = job()
    beyond = b'{"delay": 1e400, "name": "Infinity"}'
    write_json(
        one.topic, beyond, b'{"delay": 1e308, "name": "1e400 is :Infinity"}', b'{"more": [-1e999]}',
        b'{"id": 1, "id": 2}', b'{"name": 7.50}', b'{"name": {"x": [1, true]}}', b'{"id": 1.5}',
        b'{"delay": ' + b"9" * 400 + b"}",
    )  # fmt: skip
    run(spark, one)
    assert rows(one.table, "_offset", "name", "delay") == [
        (1, "1e400 is :Infinity", 1e308), (4, "7.5", None), (5, '{"x":[1,true]}', None)
    ]  # fmt: skip
    assert rows(f"{one.table}-dead-letters", "_offset", "reason") == [
        (0, "a number is beyond the range of double"),
        (2, "a number is beyond the range of double"), (3, "the value is not JSON"),
        (6, "does not fit: id (bigint)"), (7, "a number is beyond the range of double"),
    ]  # fmt: skip


@pytest.mark.slow
def test_each_line_is_a_row_where_values_are_json_lines(spark, job, write_json):
    for schema in (SCHEMA, None):
        one = job(schema=schema, json_lines=True, table=f"{job().table}-{schema is None}")
        write_json(one.topic, b'{"id": 1}\n\n{"id": 2}\r\n{"id": x}', None, b" \n", b'{"id": 3}')
        done = run(spark, one)
        assert rows(one.table, "id", "_offset") == [(1, 0), (2, 0), (3, 3)]
        assert done.dead_letters == 3


@pytest.mark.slow
def test_a_number_that_a_tinyint_cannot_hold_is_a_dead_letter(spark, job, write_json):
    """Spark reads 200 as -56."""
    one = job(schema="a tinyint")
    write_json(one.topic, {"a": 127}, {"a": 200}, {"a": 300}, {"a": -128}, {"a": None})
    done = run(spark, one)
    assert (done.rows, done.dead_letters) == (3, 2)
    assert rows(one.table, "a", "_offset") == [(-128, 3), (127, 0), (None, 4)]
    dead = rows(f"{one.table}-dead-letters", "_offset", "reason")
    assert dead == [(each, "does not fit: a (tinyint)") for each in (1, 2)]


@pytest.mark.slow
def test_so_is_one_that_a_tinyint_within_a_field_cannot_hold(spark, job, write_json):
    kinds = {
        "a": ("struct<x:tinyint,y:string>", lambda number: {"x": number, "y": "y"}),
        "b": ("array<tinyint>", lambda number: [1, number]),
        "c": ("map<string,tinyint>", lambda number: {"k": number}),
        "d": ("array<struct<x:map<string,tinyint>>>", lambda number: [{"x": {"k": number}}]),
    }
    one = job(schema=", ".join(f"{name} {kind}" for name, (kind, _) in kinds.items()))
    numbers = (127, -128, None, 200, 300)
    write_json(
        one.topic,
        *({name: made(each)} for each in numbers for name, (_, made) in kinds.items()),
    )
    run(spark, one)
    assert rows(one.table, "_offset") == sorted(((each,) for each in range(12)), key=str)
    assert rows(f"{one.table}-dead-letters", "_offset", "reason") == [
        (at, f"does not fit: {name} ({kind})")
        for at, (name, (kind, _)) in enumerate([*kinds.items()] * 2, start=12)
    ]


@pytest.mark.slow
def test_a_job_goes_on_where_it_stopped(spark, job, write_json):
    one = job(options={"maxOffsetsPerTrigger": "10"})
    write_json(one.topic, *({"id": each} for each in range(25)))
    assert run(spark, one).rows == 25
    assert run(spark, one).rows == 25
    write_json(one.topic, *({"id": each} for each in range(25, 30)))
    assert run(spark, one).rows == 30
    assert rows(one.table, "id") == sorted([(each,) for each in range(30)], key=str)


def test_records_of_aborted_transactions_are_in_no_table(spark, job, write_json):
    one = job(schema=None)
    producer = Producer({"bootstrap.servers": one.bootstrap_servers, "transactional.id": "tried"})
    producer.init_transactions()
    for commits in (False, True):
        producer.begin_transaction()
        producer.produce(one.topic, json.dumps({"id": 1, f"commits_{commits}": True}))
        producer.produce(one.topic, "not JSON")
        assert producer.flush(30) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)()
    done = run(spark, one)
    assert (done.rows, done.dead_letters) == (1, 1)
    assert schema_of_table(one.table).names == ["commits_True", "id"]


@pytest.mark.slow
def test_a_crash_between_the_tables_commit_and_the_checkpoints_adds_nothing_twice(
    spark, job, write_json, tmp_path
):
    one = job(checkpoint=str(tmp_path / "checkpoint"))
    write_json(one.topic, {"id": 1}, b"bad", {"id": 2})
    before = run(spark, one)
    commits = tmp_path / "checkpoint" / "commits"
    for each in [*commits.glob("0"), *commits.glob(".0.crc")]:
        each.unlink()
    assert not list(commits.glob("0"))
    write_json(one.topic, {"id": 3})
    after = run(spark, one)
    assert (before.rows, before.dead_letters) == (2, 1)
    assert (after.rows, after.dead_letters) == (3, 1)
    files = {each.split("/")[-1] for each in DeltaTable(one.table).file_uris()}
    assert {each.name for each in (tmp_path / "table").glob("*.parquet")} == files


@pytest.mark.slow
@pytest.mark.parametrize("lacking", ["", "-dead-letters"])
def test_a_crash_between_the_commits_of_both_tables_loses_nothing(
    spark, job, write_json, tmp_path, lacking
):
    one = job(checkpoint=str(tmp_path / "checkpoint"))
    write_json(one.topic, {"id": 1}, b"bad", {"id": 2})
    before = run(spark, one)
    commits = tmp_path / "checkpoint" / "commits"
    for each in (*commits.glob("0"), *commits.glob(".0.crc")):
        each.unlink()
    Path(one.table + lacking, "_delta_log", f"{1:020}.json").unlink()
    assert run(spark, one)[:2] == before[:2] == (2, 1)
    assert rows(one.table, "id") == [(1,), (2,)]
    assert rows(f"{one.table}-dead-letters", "_offset") == [(1,)]


@pytest.mark.slow
def test_a_schema_that_is_not_given_grows_while_the_job_runs(spark, job, write_json):
    one = job(schema=None, options={"maxOffsetsPerTrigger": "5"})
    write_json(one.topic, {"id": 1, "name": "a"})
    run(spark, one)
    query = keep_table(spark, one, follow=True)
    try:
        write_json(
            one.topic, {"id": 2, "name": "b", "city": None}, {"id": "x", "lost": 1}, {"id": 3}
        )  # fmt: skip
        query.processAllAvailable()
        names = [each.name for each in spark.streams.active]
        assert names == [f"{one.topic} to {one.table}"], "what Spark's page calls it"
        write_json(
            one.topic, {"id": 4, "city": "Oslo", "rain": 1}, {"id": 5, "Id": 5},
            {"id": 6, "rain": 1.5, "at": {"x": [1], "y": None}}, {"id": 7, "_offset": 7}, {"id": 8, "a b": 8},
            {"id": 9, "wind": True}, {"id": 10, "rain": "much"},
        )  # fmt: skip
        query.processAllAvailable()
        write_json(one.topic, {"id": 11, "wind": "strong"}, {"id": 12, "late": "l"}, b"bad")
        query.processAllAvailable()
    finally:
        query.stop()
    names = ("id", "name", "city", "rain", "at", "wind", "late", "_offset")
    whole = dict.fromkeys(names)
    assert rows(one.table, *names) == sorted(
        (
            tuple({**whole, **each}.values())
            for each in (
                {"id": 1, "name": "a", "_offset": 0},
                {"id": 2, "name": "b", "_offset": 1},
                {"id": 3, "_offset": 3},
                {"id": 4, "city": "Oslo", "rain": 1.0, "_offset": 4},
                {"id": 6, "rain": 1.5, "at": {"x": [1], "y": None}, "_offset": 6},
                {"id": 9, "wind": True, "_offset": 9},
                {"id": 12, "late": "l", "_offset": 12},
            )
        ),
        key=str,
    )
    assert rows(f"{one.table}-dead-letters", "_offset", "reason") == sorted(
        [
            (2, "does not fit: id (bigint)"),
            (5, "fields that cannot be columns: Id"),
            (7, "fields that cannot be columns: _offset"),
            (8, "fields that cannot be columns: a b"),
            (10, "does not fit: rain (double)"),
            (11, "does not fit: wind (boolean)"),
            (13, "the value is not JSON"),
        ],
        key=str,
    )


@pytest.mark.slow
def test_no_record_of_a_growing_table_keeps_it_from_being_read(spark, job, write_json):
    one = job(schema=None)
    write_json(one.topic, {"id": 1}, rb'{"id": 2, "\ud800": 1}')
    assert run(spark, one).rows == 1
    deep = '{"id": 3, "deep": ' + '{"n": ' * 60 + "1" + "}" * 61
    write_json(one.topic, deep.encode(), {"id": 4})
    run(spark, one)
    assert rows(f"{one.table}-dead-letters", "_offset", "reason") == [(1, "the value is not JSON")]
    assert rows(one.table, "id") == [(1,), (3,), (4,)]


def test_more_fields_than_a_table_may_have_are_refused(spark, tmp_path):
    table = str(tmp_path / "table")
    prepare(table, StructType.fromDDL("id bigint"))
    add_fields(table, [StructField("name", StringType())])
    many = [StructField(f"field{each}", StringType()) for each in range(MOST_FIELDS - 1)]
    with pytest.raises(PipelineFault, match=r"bring 999 more, as 'field0'; .* at most 1000"):
        add_fields(table, many)
    assert schema_of_table(table).names == ["id", "name"]


def test_fields_beyond_a_given_schema_are_left_out(spark, job, write_json):
    one = job(schema="id bigint")
    write_json(one.topic, {"id": 1, "more": 1, "Id": 2, "a b": 3})
    done = run(spark, one)
    assert (done.rows, done.dead_letters) == (1, 0)
    assert [each.name for each in DeltaTable(one.table).schema().fields] == [
        "id", "_partition", "_offset", "_timestamp",
    ]  # fmt: skip


def test_what_does_not_fit_together_is_refused(spark, job, write_json, tmp_path):
    one = job()
    write_json(one.topic, {"id": 1})
    run(spark, one)
    for changed, said in (
        ({"schema": "id string"}, "has the field id as bigint, and the schema says id as string"),
        ({"schema": "ID bigint"}, "has the field id as bigint, and the schema says ID as bigint"),
        ({"table": str(tmp_path / "other"), "checkpoint": f"{one.table}-checkpoint"}, "belongs to"),
        ({"schema": "id bigint,,"}, "cannot be read: write it as 'id bigint, name string'"),
        ({"schema": "_offset bigint"}, "has _offset, which the job writes itself"),
        ({"schema": "_OFFSET bigint"}, "has _OFFSET, which the job writes itself"),
        ({"schema": "a int, A int"}, "has a, A, which are one column"),
        ({"schema": "a array<interval day>"}, "has the field a as interval day, which is not"),
        ({"schema": "a struct<b: varchar(3)>"}, "has the field a as varchar.3., which is not"),
        ({"schema": "a int not null"}, "has the field a as NOT NULL, which is not"),
        ({"dead_letters": one.table}, "need folders of their own"),
        ({"checkpoint": f"{one.table}/checkpoint"}, "need folders of their own"),
        ({"checkpoint": f"{one.table}/_delta_log/checkpoint"}, "need folders of their own"),
        ({"table": __file__}, "cannot be opened or created: .*[^.]. Name a folder that"),
        ({"table": "s3://bucket/t"}, "is not a folder"),
        ({"schema": None, "table": str(tmp_path / "new")}, "none of the first 10000 records"),
    ):
        with pytest.raises(PipelineFault, match=said):
            keep_table(spark, job(**changed))


@pytest.mark.parametrize(
    ("schema", "partition_by", "said"),
    [
        (pa.schema([("id", pa.int64()), ("name", pa.string())]), ["name"], "partitioned by name"),
        (pa.schema([pa.field("id", pa.int64(), nullable=False)]), None, "id as bigint not null"),
    ],
)
def test_a_table_that_rows_cannot_be_added_to_as_they_are_is_refused(
    spark, job, schema, partition_by, said
):
    one = job()
    DeltaTable.create(one.table, schema, partition_by=partition_by)
    with pytest.raises(PipelineFault, match=said):
        keep_table(spark, one)
    assert DeltaTable(one.table).version() == 0


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["", "-dead-letters"])
def test_a_checkpoint_does_not_outlive_its_tables(spark, job, write_json, gone):
    one = job()
    write_json(one.topic, {"id": 1}, b"bad")
    before = run(spark, one)
    folder = Path(one.table + gone)
    folder.rename(f"{folder}-moved")
    with pytest.raises(PipelineFault, match=f"{folder} is gone, and its checkpoint"):
        keep_table(spark, one)
    Path(f"{folder}-moved").rename(folder)
    assert run(spark, one) == before


@pytest.mark.slow
def test_a_checkpoint_may_lie_hidden_in_its_table(spark, job, write_json):
    one = job()
    one = replace(one, checkpoint=f"{one.table}/_checkpoint")
    write_json(one.topic, {"id": 1})
    run(spark, one)
    write_json(one.topic, {"id": 2})
    run(spark, one)
    known = DeltaTable(one.table)
    known.vacuum(0, dry_run=False, enforce_retention_duration=False)
    run(spark, one)
    assert rows(one.table, "id") == [(1,), (2,)]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_a_checkpoint_that_names_no_job_is_told(spark, job, write_json, text):
    one = job()
    write_json(one.topic, {"id": 1})
    run(spark, one)
    path = Path(f"{one.table}-checkpoint", IDENTITY)
    path.write_text(text)
    with pytest.raises(PipelineFault, match=f"{path} is damaged"):
        keep_table(spark, one)


def test_a_transaction_that_a_table_has_is_not_added_again(spark, job, write_json, tmp_path):
    one = job()
    write_json(one.topic, {"id": 1})
    run(spark, one)
    for number, added in (("7", True), ("7", False), ("6", False), ("8", True)):
        name = f"file-{number}-{added}.parquet"
        (tmp_path / "table" / name).write_bytes(b"x")
        assert add_once(one.table, [Added(name, 1, 1)], "application", int(number)) is added
        assert (tmp_path / "table" / name).exists() is added


def test_the_verb_tells_what_the_table_has_and_why_it_could_not(spark, job, write_json):
    one = job()
    write_json(one.topic, {"id": 1}, b"bad")
    words = ["spark", "tables", "--bootstrap-server", one.bootstrap_servers, "--table", one.table]
    done = CliRunner().invoke(main, [*words, "--topic", one.topic, "--schema", SCHEMA, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "table": one.table, "rows": 1, "dead_letters": 1, "version": 1,
    }  # fmt: skip
    assert "micro-batch 0: 2 records" in done.stderr
    again = CliRunner().invoke(main, [*words, "--topic", one.topic, "--schema", "id string"])
    assert again.exit_code == 1
    assert again.stderr.startswith("Error: The table ")
    missing = CliRunner().invoke(main, [*words, "--topic", "absent", "--schema", SCHEMA])
    assert missing.exit_code == 1
    assert "absent" in missing.stderr
    assert "Traceback" not in missing.stderr and "\tat " not in missing.stderr


def test_a_table_that_goes_before_it_is_counted_is_told(spark, job, write_json, monkeypatch):
    one = job()
    write_json(one.topic, {"id": 1})
    watch = cli_spark._watch

    def watched(query):
        watch(query)
        shutil.rmtree(f"{one.table}-dead-letters")

    monkeypatch.setattr(cli_spark, "_watch", watched)
    words = ["spark", "tables", "--bootstrap-server", one.bootstrap_servers, "--table", one.table]
    done = CliRunner().invoke(main, [*words, "--topic", one.topic, "--schema", SCHEMA])
    assert done.exit_code == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert f"{one.table}-dead-letters" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tables", "--table", "t", "--topic", "absent"), "There is no topic 'absent'."),
        (("scrub", "--topic", "absent"), "There is no topic 'absent'."),
        (("scrub", "--bootstrap-server", "127.0.0.1:1"), "127.0.0.1:1 cannot be reached"),
    ],
)
def test_what_is_not_there_is_refused_before_spark_starts(topics, monkeypatch, words, said):
    monkeypatch.setattr(session, "job_session", None)
    told = CliRunner().invoke(
        main, ["spark", *words], env={"ANABRANCH_BOOTSTRAP_SERVER": topics.bootstrap}
    )
    assert told.exit_code == 1
    assert told.stderr.startswith(f"Error: {said}")


@pytest.mark.slow
def test_a_killed_driver_loses_and_repeats_nothing_while_the_schema_grows(spark, job, write_json):
    one = job(schema=None)
    values = [{"id": each, f"field{each // 500}": each} for each in range(6000)]
    write_json(one.topic, values[0])
    run(spark, one)
    write_json(one.topic, *values[1:])
    command = [sys.executable, "-m", "anabranch", "spark", "tables", "--max-records", "300"]
    command += ["--bootstrap-server", one.bootstrap_servers, "--topic", one.topic]
    driver = subprocess.Popen([*command, "--table", one.table], start_new_session=True)
    try:
        deadline = time.monotonic() + 200
        while len(DeltaTable(one.table).schema().fields) < 3 + 5:
            assert time.monotonic() < deadline and driver.poll() is None
            time.sleep(0.01)
    finally:
        end(psutil.Process(driver.pid))
        driver.wait()
    assert counted(one).rows < 6000, "the job was done before it was killed"
    assert run(spark, one).rows == 6000
    table = DeltaTable(one.table).to_pyarrow_table().drop_columns(PLACE.names).to_pylist()
    found = [{name: each for name, each in row.items() if each is not None} for row in table]
    assert sorted(found, key=itemgetter("id")) == values


def test_new_fields_are_found_in_records_that_are_no_unicode_text(tmp_path):
    """Spark hands text on as its bytes are, here those of Latin-1."""
    written = '{"id": 1, "town": "Köln"}'.encode("latin-1")
    ends = pa.py_buffer(struct.pack("<ii", 0, len(written)))
    rows = pa.table(
        {
            FITS: pa.array([{"id": 1}], pa.struct([("id", pa.int64())])),
            DEAD: pa.nulls(1, pa.struct([("reason", pa.string())])),
            REASON: pa.nulls(1, pa.string()),
            MORE: pa.StringArray.from_buffers(1, ends, pa.py_buffer(written)),
        }
    )
    writer = TableWriter(str(tmp_path / "table"), str(tmp_path / "dead"), "application")
    assert writer.write(iter(rows.to_batches())).more == {"town": StringType()}


@pytest.mark.parametrize(
    ("name", "configuration", "said"),
    [
        (pa.field("name", pa.string(), nullable=False), {}, "name as string not null"),
        (pa.field("name", pa.string()), {"delta.columnMapping.mode": "name"}, "maps columns by"),
        (
            pa.field("name", pa.string(), metadata={"delta.generationExpression": "string(id)"}),
            {}, "has rules for name",
        ),
    ],
)  # fmt: skip
def test_a_table_whose_writers_must_do_more_than_this_job_is_refused(
    tmp_path, name, configuration, said
):
    table = str(tmp_path / "table")
    schema = pa.schema([pa.field("id", pa.int64()), name])
    DeltaTable.create(table, schema, configuration=configuration)
    check_is_refused(table, said)


def test_a_table_with_constraints_is_refused(tmp_path):
    table = str(tmp_path / "table")
    DeltaTable.create(table, pa.schema([("id", pa.int64())]))
    DeltaTable(table).alter.add_constraint({"few": "id < 9"})
    check_is_refused(table, "has the constraints few")


def check_is_refused(table, said):
    before = DeltaTable(table).version()
    with pytest.raises(PipelineFault, match=f"{said}.*: write to another table"):
        prepare(table, StructType([StructField("id", LongType())]))
    assert DeltaTable(table).version() == before


def test_a_table_that_the_delta_library_does_not_change_is_told_with_a_remedy(tmp_path):
    table = str(tmp_path / "table")
    prepare(table, StructType.fromDDL("id bigint"))
    newer = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["unheardOf"]}
    Path(table, "_delta_log", f"{1:020}.json").write_text(json.dumps({"protocol": newer}))
    said = f"new fields were not added to the table {table}: .*[^.]. Check that .* run the job"
    with pytest.raises(PipelineFault, match=said):
        add_fields(table, [StructField("name", StringType())])


def test_a_table_that_cannot_be_read_is_told_with_a_remedy(tmp_path):
    table = str(tmp_path / "table")
    prepare(table, StructType.fromDDL("id bigint"))
    Path(table, "_delta_log", f"{0:020}.json").write_text("{")
    with pytest.raises(PipelineFault, match=f"{table} cannot be opened: [^<]*[^.<]. Name a"):
        schema_of_table(table)


def test_of_two_processes_on_one_checkpoint_one_adds_and_one_is_told(tmp_path, monkeypatch):
    table = str(tmp_path / "table")
    DeltaTable.create(table, pa.schema([("id", pa.int64())]))
    both = DeltaTable(table), DeltaTable(table)  # as both saw it before either one had added
    for name in ("one", "other"):
        (tmp_path / "table" / name).write_bytes(b"x")
    for known, name in zip(both, ("one", "other"), strict=True):
        with monkeypatch.context() as patch:
            patch.setattr("deltalake.DeltaTable", lambda _path, known=known: known)
            if name == "one":
                assert add_once(table, [Added(name, 1, 1)], "application", 3)
                continue
            with pytest.raises(PipelineFault, match="no other process runs with this checkpoint"):
                add_once(table, [Added(name, 1, 1)], "application", 3)
    assert DeltaTable(table).version() == 1


def test_a_failed_commit_takes_no_file_from_a_table_that_has_it(spark, job, write_json, tmp_path):
    one = job()
    write_json(one.topic, {"id": 1}, b"bad")
    run(spark, one)
    files = []
    for table in (tmp_path / "table", tmp_path / "table-dead-letters"):
        (source,) = table.glob("*.parquet")
        copy = table / f"copy-of-{source.name}"
        copy.write_bytes(source.read_bytes())
        files.append([Added(copy.name, copy.stat().st_size, 1)])
    writer = TableWriter(one.table, str(tmp_path / "not-there"), "application")
    with pytest.raises(PipelineFault, match=r"Micro-batch 1 was not added .*not-there.* run the"):
        writer.commit([Files(*files)], 1)
    writer.abort([Files(*files)], 1)  # as Spark does after a commit that failed
    assert rows(one.table, "id") == [(1,), (1,)]
