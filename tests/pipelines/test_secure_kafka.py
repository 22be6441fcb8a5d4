"""Source and sink at a broker of Apache Kafka that asks for TLS and a login, and where the secrets of
that job are: its plans, event log, checkpoint, errors, log lines and processes are searched.

Runs with ANABRANCH_TEST_PEER=kafka and the jars of `scripts/kafka-jars`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark
import pytest

if os.environ.get("ANABRANCH_TEST_PEER") != "kafka":
    pytest.skip("needs ANABRANCH_TEST_PEER=kafka", allow_module_level=True)

from tests.client.secure_kit import (
    MECHANISMS,
    PASSWORD,
    SECRET,
    SecureKafka,
    make_stores,
    over_both,
)
from tests.pipelines.standalone import end

WRONG = "wrong-guess-7"
ROWS = 40
LOOK_SECONDS = 0.05
JOB_SECONDS = 280
DEFAULTS = """
spark.eventLog.enabled true
spark.eventLog.compress false
spark.eventLog.dir file://{folder}/events
spark.driver.memory 600m
spark.executor.memory 700m
spark.sql.shuffle.partitions 2
"""
JOB = """
import json, sys
from anabranch.pipelines.session import job_session

given = json.load(sys.stdin)
with job_session("secure", "local-cluster[1,2,700]") as spark:
    spark.sparkContext.setLogLevel("INFO")

    def read(options, topic):
        return spark.read.format("anabranch").options(**options, subscribe=topic).load()

    def write(options, topic, **more):
        rows = spark.range(given["rows"]).selectExpr("string(id) value")
        to = rows.write.format("anabranch").mode("append")
        to.options(**options, topic=topic, **more).save()

    found = {}
    for mechanism, options in given["logins"].items():
        topic = f"by-{mechanism.lower()}"
        write(options, topic)
        found[mechanism] = read(options, topic).count()
    write(options, "once", exactlyOnce="true")
    committed = {**options, "kafka.isolation.level": "read_committed"}
    found["once"] = read(committed, "once").count()
    frame = read(options, "once")
    for mode in ("simple", "extended", "formatted", "codegen", "cost"):
        frame.explain(mode)
    frame.createOrReplaceTempView("secured")
    spark.sql("cache table kept as select * from secured")
    stream = spark.readStream.format("anabranch").options(**options, subscribe="once")
    query = (
        stream.option("startingOffsets", "earliest").load()
        .writeStream.format("anabranch").options(**options, topic="streamed")
        .option("checkpointLocation", given["checkpoint"]).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    query.explain(True)
    found["streamed"] = read(options, "streamed").count()
    found["faults"] = []
    for work in (lambda: read(given["wrong"], "once").count(), lambda: write(given["wrong"], "x")):
        try:
            work()
        except Exception as fault:
            found["faults"].append(str(fault))
    print("FOUND " + json.dumps(found))
"""


def job_of(folder, given):
    """What the job found, all that it printed, and what /proc showed of its processes."""
    (folder / "events").mkdir()
    (folder / "spark-defaults.conf").write_text(DEFAULTS.format(folder=folder))
    script = folder / "job.py"
    script.write_text(JOB)
    environment = {**os.environ, "SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    with open(folder / "output.txt", "wb") as output:
        job = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=output, stderr=output,
            env=environment, cwd=folder,
        )  # fmt: skip
    shown, is_over = set(), threading.Event()

    def look():
        while not is_over.wait(LOOK_SECONDS):
            with suppress(psutil.NoSuchProcess):
                family = psutil.Process(job.pid)
                for each in (family, *family.children(recursive=True)):
                    for file in ("cmdline", "environ"):
                        with suppress(OSError):
                            shown.add(Path(f"/proc/{each.pid}/{file}").read_bytes())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        job.communicate(json.dumps(given).encode(), timeout=JOB_SECONDS)
    finally:
        is_over.set()
        looking.join()
        with suppress(psutil.NoSuchProcess):
            end(psutil.Process(job.pid))
    text = (folder / "output.txt").read_text()
    assert job.returncode == 0, text[-5_000:]
    (line,) = [each for each in text.splitlines() if each.startswith("FOUND ")]
    return json.loads(line.removeprefix("FOUND ")), text, shown


def test_rows_go_both_ways_with_each_login_and_no_secret_is_shown(tmp_path):
    stores = make_stores(tmp_path)
    with SecureKafka(stores, tmp_path / "kafka") as server:
        servers = {"bootstrap.servers": server.listeners["BOTH"]}

        def options(**more):
            given = {**servers, **over_both(stores, **more)}
            return {f"kafka.{name}": text for name, text in given.items()}

        folder = tmp_path / "job"
        folder.mkdir()
        given = {
            "rows": ROWS, "checkpoint": str(folder / "checkpoint"),
            "logins": {each: options(mechanism=each) for each in MECHANISMS},
            "wrong": options(password=WRONG),
        }  # fmt: skip
        found, text, shown = job_of(folder, given)
    assert found == {
        **dict.fromkeys((*MECHANISMS, "once", "streamed"), ROWS), "faults": found["faults"]
    }  # fmt: skip
    for fault in found["faults"]:
        assert "does not let user 'alice' in with SCRAM-SHA-512" in fault
        assert "Check username and password in sasl.jaas.config" in fault
    assert len(found["faults"]) == 2 and any(b"spark" in each for each in shown)
    events = [each.read_text() for each in (folder / "events").rglob("events_*")]
    kept = [each.read_text(errors="ignore") for each in (folder / "checkpoint").rglob("*")
            if each.is_file()]  # fmt: skip
    work = Path(pyspark.__file__).with_name("work")  # where such a cluster has its executors' logs
    logs = [each.read_text() for each in work.glob("*/*/std*")]
    shutil.rmtree(work)
    assert any(logs)
    assert "sasl.jaas.config" in "".join(events), "the event log has the options"
    for secret in (SECRET, PASSWORD, WRONG):
        for place in (text, *events, *kept, *logs):
            at = place.find(secret)
            assert at < 0, place[max(0, at - 300) : at]
        assert not any(secret.encode() in each for each in shown)
