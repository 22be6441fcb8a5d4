"""`anabranch cluster roll` on real processes: no write fails, no partition is without leader. R18."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
import time

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.node_kit import ProcessNode, free_port
from tests.server.test_rolling_restart import PARTITIONS, Watch, is_whole
from tests.server.test_three_nodes import (
    IDS,
    LONGEST_GAP_S,
    Acks,
    count_of,
    settings_of_three,
)

SECONDS = 60


def anabranch(*words):
    command = [sys.executable, "-m", "anabranch", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    """A supervised cluster with topics: its bootstrap servers and folder."""
    folder = str(tmp_path_factory.mktemp("up") / "data")
    words = [sys.executable, "-m", "anabranch", "up", "--dir", folder, "--port", "0"]
    process = subprocess.Popen(
        [*words, "--brokers", "3", "--json"], stdout=subprocess.PIPE, text=True
    )
    bootstrap = json.loads(process.stdout.readline())["bootstrap_servers"]
    create(bootstrap)
    yield bootstrap, folder
    children = psutil.Process(process.pid).children() if process.poll() is None else []
    process.kill()
    process.communicate()
    for child in children:
        child.kill()


class Restarted:
    """Processes of which one that ends is started again, as systemd would."""

    def __init__(self, tmp_path):
        self.nodes = {}
        self._folder = tmp_path
        self._ended = threading.Event()
        for each, settings in settings_of_three(tmp_path).items():
            port = free_port()
            settings["listeners"] = settings["listeners"].format(port)
            self.nodes[each] = ProcessNode(tmp_path / str(each), port, **settings)
            self._start(each)
        for node in self.nodes.values():
            node.ready()
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes.values())
        self._thread = threading.Thread(target=self._keep)
        self._thread.start()

    def _start(self, each):
        self.nodes[each].start()
        (self._folder / f"{each}.pid").write_text(str(self.nodes[each].process.pid))

    def _keep(self):
        while not self._ended.is_set():
            for each, node in self.nodes.items():
                if node.process.poll() is not None:
                    node.process.communicate()
                    self._start(each)
            time.sleep(0.05)

    def close(self):
        self._ended.set()
        self._thread.join()
        for node in self.nodes.values():
            node.close()


@pytest.fixture
def restarted(tmp_path):
    cluster = Restarted(tmp_path)
    yield cluster
    cluster.close()


def create(bootstrap):
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    config = {"min.insync.replicas": "2"}
    topics = [NewTopic("t", 1, 3, config=config), NewTopic("u", PARTITIONS, 3, config=config)]
    for made in admin.create_topics(topics).values():
        made.result(20)
    until(lambda: is_whole(bootstrap))
    return admin


def rolled(bootstrap, *words):
    """Roll the cluster under load; the events that the command printed."""
    watches = [Watch(each) for each in bootstrap.split(",")]
    acks = Acks(bootstrap)
    try:
        until(lambda: len(acks.times) > 100)
        done = anabranch("cluster", "roll", "--bootstrap-server", bootstrap, "--json", *words)
        assert done.returncode == 0, done.stderr
        before = len(acks.times)
        until(lambda: len(acks.times) > before + 100)
    finally:
        acks.stop()
        for watch in watches:
            watch.stop()
    assert not acks.failures
    assert [(watch.seen, watch.refusals) for watch in watches] == [([], [])] * len(IDS)
    assert count_of(bootstrap) == len(acks.times)
    assert acks.longest_gap_s() < LONGEST_GAP_S
    print(f"{len(acks.times)} acks, longest gap {acks.longest_gap_s():.3f} s\n{done.stdout}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_order(events, order):
    told = [(each["event"], each["id"]) for each in events]
    assert told == [(event, each) for each in order for event in ("restarts", "back")]


def planned(bootstrap):
    done = anabranch("cluster", "roll", "--bootstrap-server", bootstrap, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_r18_a_supervised_cluster_is_rolled_without_a_failed_write(up):
    bootstrap, folder = up
    before = planned(bootstrap)
    assert before["order"][-1] == before["controller_id"]
    assert (sorted(before["order"]), before["obstacles"], before["risks"]) == (list(IDS), [], [])
    check_order(rolled(bootstrap, "--dir", folder), before["order"])


def test_r18_brokers_are_restarted_by_a_command_without_a_failed_write(restarted, tmp_path):
    create(restarted.bootstrap)
    before = planned(restarted.bootstrap)
    pids = {each: node.process.pid for each, node in restarted.nodes.items()}
    command = f"sh -c 'kill $(cat {shlex.quote(str(tmp_path))}/{{id}}.pid)'"
    check_order(rolled(restarted.bootstrap, "--restart-command", command), before["order"])
    assert not set(pids.values()) & {node.process.pid for node in restarted.nodes.values()}


def test_a_command_that_restarts_nothing_stops_the_roll(up):
    bootstrap, _folder = up
    words = ["cluster", "roll", "--bootstrap-server", bootstrap, "--restart-command"]
    done = anabranch(*words, "true {id}", "--wait", "1")
    assert done.returncode == 1
    assert "still runs as before: nothing restarted it; not restarted: " in done.stderr
    assert "Traceback" not in done.stderr
    failed = anabranch(*words, "false {id}")
    assert "ended with exit code 1" in failed.stderr


def test_nothing_begins_while_a_broker_is_away_or_could_not_be_spared(up):
    bootstrap, folder = up
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("alone", 1, 1)])["alone"].result(20)
    refused = anabranch("cluster", "roll", "--bootstrap-server", bootstrap, "--dir", folder)
    assert refused.returncode == 1
    assert "nothing was restarted" in refused.stderr
    assert "alone has alone-0; give it more replicas" in refused.stderr
    assert "--unavailable-allow" in refused.stderr
    told = anabranch("cluster", "roll", "--bootstrap-server", bootstrap, "--dry-run").stdout
    assert told.splitlines()[2].endswith(", the active controller")
    assert "against it: broker" in told
    words = ["--unavailable-allow", "--broker", "2"]
    done = anabranch("cluster", "roll", "--bootstrap-server", bootstrap, "--dir", folder, *words)
    assert done.returncode == 0, done.stderr
    assert "broker 2 is back in every ISR after" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "say how brokers are restarted"),
        (["--restart-command", "x {node}"], "it may name {id}, {host}, {port} and {rack}"),
        (["--restart-command", "x '"], "cannot be read"),
        (["--dir", "nowhere"], "no `anabranch up --brokers` runs in nowhere"),
    ],
)
def test_bad_words_are_one_line(words, sentence):
    done = anabranch("cluster", "roll", *words)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
