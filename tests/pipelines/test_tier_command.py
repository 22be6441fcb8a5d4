"""`anabranch spark tier`: its flags, what people see, and why it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from tests.pipelines.tiering_kit import SECONDS, make, read, rows_of, runs, store_folder, write

from anabranch.cli import spark as command
from anabranch.cli.main import main
from anabranch.client.cluster import Cluster, check
from anabranch.client.ports import free_ports
from anabranch.core.remote.keys import SIDECAR
from anabranch.core.wire.messages.plan_segments import PlanSegmentsRequest
from anabranch.core.wire.messages.tier_segment import FINISH
from anabranch.pipelines import session, tiering, tiering_task
from anabranch.testing import LocalCluster

RECORDS = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tier-command")
    with LocalCluster(brokers=1, folder=folder) as started:
        started.own_folder = folder
        yield started


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Tasks run in this process, one after the other, without Spark."""

    def waves(_spark, items, work):
        for each in items:
            yield [(each, json.loads(json.dumps(work(each))))]

    monkeypatch.setattr(tiering, "waves", waves)
    monkeypatch.setattr(command, "_session", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(session, "leave_faults_to_the_job", lambda _: None)


@pytest.fixture
def admin(cluster):
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def run(cluster, *words, url=""):
    url = url or f"file://{store_folder(cluster)}"
    return told("--bootstrap-server", cluster.bootstrap_servers, "--storage-url", url, *words)


def told(*words):
    return CliRunner().invoke(main, ["spark", "tier", *words])


def fill(cluster, admin, name):
    make(admin, name, 1)
    write(cluster, name, RECORDS, partitions=1)


def test_it_says_how_much_was_tiered_and_how_many_rows_went(cluster, admin):
    fill(cluster, admin, "said")
    rows = runs(cluster, "said")
    done = run(cluster)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("1 segment, 0.0 MB in ")
    assert f"; {rows} rows deleted." in done.stdout
    again = run(cluster)
    assert (again.exit_code, again.stdout.partition(",")[0]) == (0, "0 segments")


def test_programs_get_json_and_the_url_may_be_in_a_brokers_file(cluster, admin, tmp_path):
    fill(cluster, admin, "json")
    file = tmp_path / "server.properties"
    file.write_text(
        "node.id=1\ndiskless.storage.system.enable=true\n"
        f"diskless.storage.url=file://{store_folder(cluster)}\n"
        f"diskless.coordinator.url=sqlite://{tmp_path}/none.db\n"
    )
    done = told(
        "--bootstrap-server", cluster.bootstrap_servers, "--config", str(file), "--json"
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["segments"], found["faults"], found["given_up"]) == (1, {}, 0)
    assert found["rows_freed"] and found["bytes_tiered"] and found["commit_number"] > 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Give the store: --config FILE with diskless.storage.url, or --storage-url URL."),
        (["--config", "missing.properties"], "'missing.properties' does not exist"),
        (["--storage-url", "file:///x", "--every", "0"], "0.0 is not in the range x>=1"),
        (
            ["--storage-url", "file:///x", "--every", "soon"],
            "'soon' is not a valid number of seconds",
        ),
        (["--fast"], "No such option '--fast'"),
    ],
)
def test_words_that_are_wrong_are_refused_before_anything_starts(words, says):
    done = told(*words)
    assert done.exit_code == 2
    assert says in done.stderr.replace(": --fast", " '--fast'")


def test_a_file_without_a_store_says_which_setting_it_lacks(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\n")
    done = told("--config", str(file))
    assert done.exit_code == 2
    assert "diskless.storage.url" in done.stderr


def test_help_says_what_it_does_and_gives_an_example():
    done = told("--help")
    assert done.exit_code == 0
    for each in ("diskless.tiering.age.ms", "--every SECONDS", "--storage-url URL", "Example: "):
        assert each in done.stdout


def test_a_cluster_that_does_not_answer_is_named(monkeypatch):
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    done = told("--bootstrap-server", address, "--storage-url", "file:///x")
    assert done.exit_code == 1
    assert address in done.stderr and "Traceback" not in done.output


def test_a_store_of_another_cluster_is_refused_with_both_names(cluster, admin, tmp_path):
    fill(cluster, admin, "elsewhere")
    (tmp_path / "anabranch-cluster.json").write_text('{"cluster_id": "another"}')
    done = run(cluster, url=f"file://{tmp_path}")
    assert done.exit_code == 1
    assert "belongs to cluster 'another'" in done.stderr
    assert cluster.cluster_id in done.stderr and "choose" in done.stderr
    assert run(cluster).exit_code == 0


def test_an_url_of_no_known_store_is_refused(cluster):
    done = run(cluster, url="ftp://there")
    assert done.exit_code == 1
    assert "ftp://there names no known store; write file:///" in done.stderr


async def hold(cluster, claim_id, *, is_done=False):
    async with Cluster(cluster.bootstrap_servers) as asks:
        answer = await asks.send(
            PlanSegmentsRequest(claim_id=claim_id, owner="host:7", is_done=is_done)
        )
        check(answer.error_code, answer.error_message)


def test_a_second_job_is_told_who_is_at_work_and_how_long_to_wait(cluster, admin):
    fill(cluster, admin, "twice")
    asyncio.run(hold(cluster, 77))
    done = run(cluster)
    assert done.exit_code == 1
    assert "tiering job 'host:7' is at work; wait until it has ended, or for 1" in done.stderr
    assert runs(cluster, "twice")
    asyncio.run(hold(cluster, 77, is_done=True))
    assert run(cluster).exit_code == 0
    assert not runs(cluster, "twice")


def test_with_every_it_goes_on_after_a_fault(cluster, admin, monkeypatch):
    fill(cluster, admin, "every")
    asyncio.run(hold(cluster, 78))
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 1:
            asyncio.run(hold(cluster, 78, is_done=True))
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", pause)
    done = run(cluster, "--every", "300")
    assert "is at work" in done.stderr
    assert "1 segment, " in done.stdout
    assert pauses == [300, 300]


def test_a_missing_object_is_named_and_its_partition_keeps_its_rows(cluster, admin):
    fill(cluster, admin, "missing")
    fill(cluster, admin, "sound")
    ((key,),) = rows_of(
        cluster, "SELECT object_key FROM runs JOIN wal_objects USING (object_id) JOIN logs "
        "USING (topic_id, partition) WHERE topic_name = 'missing' ORDER BY base_offset LIMIT 1",
    )  # fmt: skip
    path = store_folder(cluster) / key
    held = path.read_bytes()
    path.unlink()
    done = run(cluster)
    assert done.exit_code == 1
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("missing-0: ")]
    assert f"there is no object {key}" in line
    assert "put them back from a copy of the store" in done.stdout
    assert runs(cluster, "missing") and not runs(cluster, "sound")
    path.write_bytes(held)
    assert run(cluster).exit_code == 0
    assert len(read(cluster, "missing", 0, RECORDS)) == RECORDS


PHASES = ("planned", "started", "stored", "described")


@pytest.mark.parametrize("phase", PHASES)
def test_a_topic_that_is_deleted_in_any_phase_is_given_up(cluster, admin, phase, monkeypatch):
    name = f"deleted-{phase}"
    fill(cluster, admin, name)
    fill(cluster, admin, f"other-{phase}")
    delete = deleting(cluster, admin, name)
    of_try = tiering_task.Try
    make_it, put, step = of_try.make, of_try._put, of_try._step

    async def made(self):
        if phase == "planned":
            await delete(self)
        await make_it(self)

    async def put_all(self, files, lease):
        is_last = any(each.endswith(SIDECAR) for each in files)
        if phase == ("stored" if is_last else "started"):
            await delete(self)
        await put(self, files, lease)

    async def stepped(self, number):
        if number == FINISH and phase == "described":
            await delete(self)
        return await step(self, number)

    monkeypatch.setattr(of_try, "make", made)
    monkeypatch.setattr(of_try, "_put", put_all)
    monkeypatch.setattr(of_try, "_step", stepped)
    done = run(cluster)
    assert "Traceback" not in done.output
    assert not runs(cluster, f"other-{phase}")
    assert "1 segment, " in done.stdout
    assert "Given up to another job or a deletion: 1 segment." in done.stdout, done.output
    assert done.exit_code == 0


def deleting(cluster, admin, name):
    """Deletes the topic once, at the first of its tries; returns when its rows are gone."""
    done = []

    async def delete(of):
        if of._part.topic != name or done:
            return
        done.append(name)
        admin.delete_topics([name])[name].result(SECONDS)
        until = time.monotonic() + SECONDS
        while rows_of(cluster, "SELECT 1 FROM logs WHERE topic_name = ?", name):
            assert time.monotonic() < until
            await asyncio.sleep(0.05)

    return delete
