"""`anabranch up --brokers`: several nodes under one supervisor."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import click
import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.server.three_kit import partitions_of

from anabranch.cli import local_brokers
from anabranch.cli.local_brokers import http_listeners
from anabranch.cli.own_folder import no_leftovers, refuse_foreign
from anabranch.cli.up import left_out, say_cluster
from anabranch.server.one_machine import diskless_settings

SECONDS = 60
QUICK_START = Path(__file__).parents[2] / "docs/start/quick-start.md"


def hear_interrupts():
    """As in a terminal: what a shell runs in the background inherits that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def up(tmp_path):
    words = [sys.executable, "-m", "anabranch", "up", "--dir", str(tmp_path / "data")]
    words += ["--port", "0", "--brokers", "3", "--racks", "a,b,c", "--json"]
    words += ["--set", "http.listener=127.0.0.1:0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=hear_interrupts)
    yield process
    children = psutil.Process(process.pid).children() if process.poll() is None else []
    process.kill()
    process.communicate()
    for child in children:
        child.kill()


def test_three_brokers_serve_a_killed_one_comes_back_and_ctrl_c_ends_them_all(up):
    ready = json.loads(up.stdout.readline())
    assert [each["rack"] for each in ready["brokers"]] == ["a", "b", "c"]
    assert len(ready["bootstrap_servers"].split(",")) == 3
    for each in ready["brokers"]:
        with urlopen(f"http://{each['http']}/healthz") as page:
            assert page.status == 200
    admin = AdminClient({"bootstrap.servers": ready["bootstrap_servers"], "log_level": 0})
    admin.create_topics([NewTopic("t", 3)])["t"].result(SECONDS)
    partitions = partitions_of(admin, count=3).values()
    assert {len(each.replicas) for each in partitions} == {3}

    os.kill(ready["brokers"][1]["pid"], signal.SIGKILL)
    ended = json.loads(up.stdout.readline())
    assert (ended["event"], ended["id"], ended["exit_code"]) == ("ended", 2, -signal.SIGKILL)
    back = json.loads(up.stdout.readline())
    assert (back["event"], back["id"]) == ("ready", 2)
    assert back["pid"] != ready["brokers"][1]["pid"]

    children = psutil.Process(up.pid).children()
    up.send_signal(signal.SIGINT)
    assert up.wait(SECONDS) == 0
    assert not [child for child in children if child.is_running()]


def test_one_broker_keeps_a_log_and_tells_where_its_pages_are(tmp_path):
    words = [sys.executable, "-m", "anabranch", "up", "--dir", str(tmp_path / "data")]
    words += ["--port", "0", "--set", "http.listener=127.0.0.1:0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=hear_interrupts)
    try:
        said = [process.stdout.readline() for _ in range(4)]
        assert f"log in {tmp_path / 'data' / 'broker-1.log'}." in said[0]
        with urlopen(re.search(r"http://\S+(?=/metrics)", said[1])[0] + "/healthz") as page:
            assert page.status == 200
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
    assert " INFO node: " in (tmp_path / "data" / "broker-1.log").read_text()


def test_each_broker_has_pages_of_its_own():
    asked = http_listeners("127.0.0.1:9644", 3)
    assert asked == [f"127.0.0.1:{port}" for port in (9644, 9645, 9646)]
    assert http_listeners("[::1]:9644", 2) == ["[::1]:9644", "[::1]:9645"]
    free = http_listeners("127.0.0.1:0", 3)
    assert len(set(free)) == 3
    assert "127.0.0.1:0" not in free
    assert http_listeners("", 2) == ["", ""]
    assert http_listeners("nonsense", 2) == ["nonsense"] * 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--port", "65534"], "--port 65534 leaves too few ports below 65536 for 3 brokers"),
        (["--set", "node.id=7"], "--set node.id=… cannot be the same for 3 brokers"),
        (["--set", "num.partitions=none"], "num.partitions"),
        (["--racks", "a,,c"], "--racks a,,c: a rack name is empty"),
        (["--racks", "a,b,c,d"], "--racks a,b,c,d names 4 racks for 3 brokers"),
    ],
)
def test_what_cannot_hold_for_several_is_refused_in_one_line(tmp_path, words, sentence):
    command = [sys.executable, "-m", "anabranch", "up", "--brokers", "3"]
    command += ["--dir", str(tmp_path / "data"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


SIGNALLED = """
import importlib, os, sys
from anabranch.cli.main import main
place, _, name = sys.argv[1].rpartition(".")
def end(*_, **__):
    os.kill(os.getpid(), int(sys.argv[2]))
setattr(importlib.import_module(place), name, end)
main(sys.argv[3:])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("brokers", "step"),
    [
        ("1", "anabranch.cli.up.refuse_foreign"),
        ("1", "anabranch.cli.local_brokers.wait_free"),
        ("1", "anabranch.server.one_machine.diskless_settings"),
        ("1", "anabranch.server.main.new_loop"),
        ("3", "anabranch.cli.up.refuse_foreign"),
        ("3", "anabranch.cli.local_brokers.free_ports"),
        ("3", "anabranch.cli.local_brokers.answers"),
    ],
)
def test_a_signal_at_any_step_of_the_start_ends_it_in_order(tmp_path, brokers, step, number):
    """SIGTERM ended it by itself at most of them, and what had been begun stayed in the folder."""
    folder = tmp_path / "data"
    words = ["up", "--dir", str(folder), "--port", "0", "--brokers", brokers]
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, step, str(int(number)), *words],
        capture_output=True, text=True, timeout=SECONDS, preexec_fn=hear_interrupts,
    )  # fmt: skip
    assert (done.returncode, done.stderr, folder.exists()) == (0, "", False)
    own = [each for each in psutil.process_iter(["cmdline"]) if str(folder) in str(each.info)]
    assert not own


@pytest.mark.slow
def test_brokers_end_with_a_supervisor_that_is_killed_and_the_next_one_starts(up, tmp_path):
    first = json.loads(up.stdout.readline())
    children = [psutil.Process(each["pid"]) for each in first["brokers"]]
    up.kill()
    up.wait()
    _, left = psutil.wait_procs(children, timeout=SECONDS)
    assert not left, "no node outlives the supervisor"
    words = [sys.executable, "-m", "anabranch", "up", "--dir", str(tmp_path / "data")]
    words += ["--port", "0", "--brokers", "3", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as again:
        assert len(json.loads(again.stdout.readline())["brokers"]) == 3
        again.terminate()
        assert again.wait(SECONDS) == 0


@pytest.mark.slow
def test_a_node_that_fails_again_and_again_ends_the_cluster_with_its_last_words(up, tmp_path):
    ready = json.loads(up.stdout.readline())
    victim = ready["brokers"][2]
    (tmp_path / "data" / "broker-3" / "meta.properties").write_text("version=7\n")
    os.kill(victim["pid"], signal.SIGKILL)
    told = [json.loads(each) for each in up.communicate(timeout=2 * SECONDS)[0].splitlines()]
    assert up.returncode == 1
    assert [each.get("event") for each in told] == ["ended", "failed", "failed", "failed", None]
    assert "broker 3 failed to start 3 times in a row" in told[-1]["error"]["message"]
    assert not [each for each in ready["brokers"] if psutil.pid_exists(each["pid"])]


def test_a_node_that_takes_long_to_start_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(local_brokers, "SILENCE_SECONDS", 0.1)
    monkeypatch.setattr(local_brokers, "START_SECONDS", 0.5)
    (node,) = local_brokers.LocalBrokers(str(tmp_path), brokers=1).nodes
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with (
        subprocess.Popen(waits, stdin=subprocess.PIPE) as node.process,
        pytest.raises(click.ClickException, match="did not answer within"),
    ):
        node.wait_ready()
    said = f"broker 1 does not serve yet, after 0 s; its log is {tmp_path}/broker-1.log\n"
    assert capsys.readouterr().err.count(said) >= 2


@pytest.mark.parametrize("brokers", ["1", "3"])
def test_a_folder_of_others_is_refused_before_a_byte_is_written(tmp_path, brokers):
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n")
    done = run_up(tmp_path, "--brokers", brokers)
    assert done.returncode == 1
    assert f"--dir {tmp_path} contains other files (hosts)" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["hosts"]


@pytest.mark.parametrize("brokers", ["1", "3"])
@pytest.mark.parametrize("name", ["a,b", " a", "a "])
def test_a_folder_that_log_dirs_would_take_for_others_is_refused(tmp_path, brokers, name):
    """`--dir a,b` wrote into the folders a and b, and found no data at the next start."""
    done = run_up(name, "--brokers", brokers, cwd=tmp_path)
    assert done.returncode == 1
    assert f"Error: --dir {name!r}: " in done.stderr and "name another folder" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_of_a_start_that_was_killed_is_still_ours(tmp_path):
    """A terminal that is closed, say: the first thing that a single node writes was there alone."""
    folder = tmp_path / "data"
    with no_leftovers(folder) as keep:
        diskless_settings(str(folder))
        keep()
    assert list(folder.iterdir())
    refuse_foreign(folder)


@pytest.mark.parametrize("brokers", ["1", "3"])
def test_a_folder_that_cannot_be_made_is_told_so(tmp_path, brokers):
    (tmp_path / "file").write_text("")
    done = run_up(tmp_path / "file" / "data", "--brokers", brokers)
    assert done.returncode == 1
    assert f"Error: --dir {tmp_path}/file/data: Not a directory; name a folder" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_start_that_is_refused_leaves_nothing_behind(tmp_path, brokers, is_there):
    folder = tmp_path / "data"
    if is_there:
        (folder / "lost+found").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_up(folder, "--brokers", brokers, port=port)
    assert done.returncode == 1
    assert f"port {port} of 127.0.0.1 is in use" in done.stderr
    assert "or take another --port" in done.stderr
    assert "Traceback" not in done.stderr
    assert folder.exists() == is_there
    assert not is_there or [each.name for each in folder.iterdir()] == ["lost+found"]


def test_the_process_of_each_broker_is_told_as_the_quick_start_shows_it(capsys):
    shown = re.search(r"^broker 3 serves at .*pid (\d+).*$", QUICK_START.read_text(), re.MULTILINE)
    node = SimpleNamespace(
        node_id=3, bootstrap="127.0.0.1:9094", rack="c", pid=int(shown[1]),
        log_dir="anabranch-data-3/broker-3", http="",
    )  # fmt: skip
    say_cluster(SimpleNamespace(nodes=[node], bootstrap="127.0.0.1:9092"), as_json=False)
    assert capsys.readouterr().out.splitlines()[0] == shown[0]
    assert f"$ kill -KILL {shown[1]}\n" in QUICK_START.read_text()


def run_up(folder, *words, port=0, cwd=None):
    command = [sys.executable, "-m", "anabranch", "up", "--dir", str(folder), "--port", str(port)]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=SECONDS, cwd=cwd
    )


def test_fewer_brokers_than_there_were_are_said(tmp_path):
    for number in (1, 2, 3, 11):
        (tmp_path / f"broker-{number}").mkdir()
        (tmp_path / f"broker-{number}" / "meta.properties").write_text("version=7\n")
    (tmp_path / "broker-x").mkdir()
    (tmp_path / "broker-4").mkdir()
    assert [left_out(tmp_path, brokers) for brokers in (2, 3, 11)] == [[3, 11], [11], []]
    command = [sys.executable, "-m", "anabranch", "up", "--dir", str(tmp_path), "--port", "0"]
    done = subprocess.run(
        [*command, "--brokers", "2"], capture_output=True, text=True, timeout=SECONDS
    )
    said = "Not started: brokers 3, 11 of {}. Partitions that have no other replicas are unavailable. Start all with --brokers 11"
    assert done.returncode == 1, "no node takes such a meta.properties"
    assert said.format(tmp_path) in done.stderr


@pytest.mark.parametrize(
    ("place", "brokers", "sentence"),
    [
        (".", "3", "contains the data of a single node"),
        ("broker-1", "1", "contains the data of several brokers"),
    ],
)
def test_one_node_and_several_do_not_share_a_folder(tmp_path, place, brokers, sentence):
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "meta.properties").write_text("version=1\n")
    command = [sys.executable, "-m", "anabranch", "up", "--dir", str(tmp_path), "--port", "0"]
    done = subprocess.run(
        [*command, "--brokers", brokers], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 1
    assert sentence in done.stderr and "--dir" in done.stderr
    assert "Traceback" not in done.stderr
