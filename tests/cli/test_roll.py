"""`anabranch cluster roll` on real processes: no write fails, no partition is without leader. R18."""

from __future__ import annotations

import asyncio
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
from tests.server.node_kit import ThreadNode
from tests.server.test_separate_roles import Controller, Roles
from tests.server.three_kit import (
    IDS,
    LONGEST_GAP_S,
    Acks,
    Watch,
    bootstrap_of,
    count_of,
    create_both,
    three_processes,
)

from anabranch.client.cluster import Cluster
from anabranch.client.overview import controller_of

SECONDS = 150
"""Six nodes are restarted one after the other, on a machine that others use."""
pytestmark = pytest.mark.timeout(2 * SECONDS)


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
    create_both(bootstrap)
    yield bootstrap, folder
    children = psutil.Process(process.pid).children() if process.poll() is None else []
    process.kill()
    process.communicate()
    for child in children:
        child.kill()


class Restarted:
    """Processes of which one that ends is started again, as systemd would."""

    def __init__(self, tmp_path, nodes, bootstrap):
        self.nodes = nodes
        self.bootstrap = bootstrap
        self._folder = tmp_path
        self._ended = threading.Event()
        for each in nodes:
            self._start(each)
        for node in nodes.values():
            node.ready()
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

    @property
    def command(self):
        """What ends a node, so that it is started again."""
        return f"sh -c 'kill $(cat {shlex.quote(str(self._folder))}/{{id}}.pid)'"


@pytest.fixture
def restarted(tmp_path):
    nodes = three_processes(tmp_path)
    cluster = Restarted(tmp_path, nodes, bootstrap_of(nodes))
    yield cluster
    cluster.close()


@pytest.fixture
def apart(tmp_path):
    """Three brokers, and three controllers that are none."""
    roles = Roles(tmp_path, 3)
    cluster = Restarted(tmp_path, roles.nodes, roles.bootstrap)
    yield cluster
    cluster.close()


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


@pytest.mark.slow
def test_r18_a_supervised_cluster_is_rolled_without_a_failed_write(up):
    bootstrap, folder = up
    before = planned(bootstrap)
    assert before["order"][-1] == before["controller_id"]
    assert (sorted(before["order"]), before["obstacles"], before["risks"]) == (list(IDS), [], [])
    check_order(rolled(bootstrap, "--dir", folder), before["order"])


def test_r18_brokers_are_restarted_by_a_command_without_a_failed_write(restarted):
    create_both(restarted.bootstrap)
    before = planned(restarted.bootstrap)
    pids = {each: node.process.pid for each, node in restarted.nodes.items()}
    events = rolled(restarted.bootstrap, "--restart-command", restarted.command)
    check_order(events, before["order"])
    assert not set(pids.values()) & {node.process.pid for node in restarted.nodes.values()}


@pytest.mark.slow
def test_nodes_that_are_controllers_only_are_restarted_too(apart):
    create_both(apart.bootstrap)
    until(lambda: len(planned(apart.bootstrap)["order"]) == len(apart.nodes))
    before = planned(apart.bootstrap)
    active = before["controller_id"]
    waiting = [each for each in (101, 102, 103) if each != active]
    assert before["order"] == [*IDS, *waiting, active]
    pids = {each: node.process.pid for each, node in apart.nodes.items()}
    check_order(rolled(apart.bootstrap, "--restart-command", apart.command), before["order"])
    assert not set(pids.values()) & {node.process.pid for node in apart.nodes.values()}
    words = ["cluster", "roll", "--bootstrap-server", apart.bootstrap, "--broker", str(waiting[0])]
    done = anabranch(*words, "--restart-command", apart.command)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == f"controller {waiting[0]} is restarted"
    assert second.startswith(f"controller {waiting[0]} is back after ")


def test_a_controller_is_what_runs_at_its_address(tmp_path):
    """`unregister` said done of one that ran, and registered again at once; `roll` restarted one in
    place of another, which was gone."""
    roles = Roles(tmp_path, 2).start()
    gone, active = sorted(roles.controllers, key=lambda each: each == active_of(roles.bootstrap))
    try:
        for words in ((), ("--force",)):
            place = ("--bootstrap-server", roles.bootstrap, *words)
            refused = anabranch("cluster", "unregister", str(gone), *place)
            assert refused.returncode == 1
            said = f"controller {gone} is running, and would register again: stop it first"
            assert said in refused.stderr
        stopped = roles.nodes.pop(gone)
        stopped.close()
        roles.nodes[104] = Controller(tmp_path, 104, stopped.port, roles.servers)
        roles.nodes[104].start()
        roles.nodes[104].ready()
        until(lambda: 104 in planned_anyway(roles.bootstrap)["order"])
        told = planned_anyway(roles.bootstrap)["obstacles"]
        at = f"registered at 127.0.0.1:{stopped.port}"
        assert any(f"controller {gone} cannot be told from 104, also {at}" in each for each in told)
        done = anabranch("cluster", "unregister", str(gone), "--bootstrap-server", roles.bootstrap)
        assert done.returncode == 0, done.stderr
        until(lambda: planned_anyway(roles.bootstrap)["obstacles"] == [])
        assert planned_anyway(roles.bootstrap)["order"] == [*IDS, 104, active]
    finally:
        roles.close()


def active_of(bootstrap):
    async def ask():
        async with Cluster(bootstrap) as cluster:
            return (await controller_of(cluster)).controller_id

    return asyncio.run(ask())


def planned_anyway(bootstrap):
    words = ("cluster", "roll", "--bootstrap-server", bootstrap, "--dry-run", "--json")
    return json.loads(anabranch(*words).stdout)


def test_a_command_that_restarts_nothing_stops_the_roll(up):
    bootstrap, _folder = up
    words = ["cluster", "roll", "--bootstrap-server", bootstrap, "--restart-command"]
    done = anabranch(*words, "true {id}", "--wait", "1")
    assert done.returncode == 1
    assert "was not restarted; not restarted: " in done.stderr
    assert "Traceback" not in done.stderr
    failed = anabranch(*words, "false {id}")
    assert "ended with exit code 1" in failed.stderr


def test_a_silent_connection_that_its_broker_ends_is_no_restart(tmp_path):
    node = ThreadNode(tmp_path / "data", connections_max_idle_ms=500).start()
    try:
        words = ["--bootstrap-server", node.node.bootstrap_servers, "--restart-command", "true"]
        done = anabranch("cluster", "roll", *words, "--wait", "3")
    finally:
        node.stop()
    assert done.returncode == 1
    assert "broker 1 was not restarted" in done.stderr


def test_nothing_begins_while_a_broker_is_away_or_could_not_be_spared(up):
    bootstrap, folder = up
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("alone", 1, 1)])["alone"].result(20)
    refused = anabranch("cluster", "roll", "--bootstrap-server", bootstrap, "--dir", folder)
    assert refused.returncode == 1
    assert "nothing was restarted" in refused.stderr
    assert "alone has alone-0; give it more replicas" in refused.stderr
    assert "--unavailable-allow" in refused.stderr
    looked = anabranch("cluster", "roll", "--bootstrap-server", bootstrap, "--dry-run")
    assert looked.returncode == 1
    told = looked.stdout
    assert told.splitlines()[2].endswith(", the active controller")
    assert "objection: broker" in told
    words = ["--unavailable-allow", "--broker", "2"]
    done = anabranch("cluster", "roll", "--bootstrap-server", bootstrap, "--dir", folder, *words)
    assert done.returncode == 0, done.stderr
    assert "broker 2 is back in every ISR after" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "say how to restart nodes"),
        (["--restart-command", "x {node}"], "it may name {id}, {host}, {port} and {rack}"),
        (["--restart-command", "x '"], "cannot be read"),
        (["--restart-command", "x {host.x}"], "it may name {id}, {host}, {port} and {rack}"),
        (["--restart-command", "x {host[x]}"], "it may name {id}, {host}, {port} and {rack}"),
        (["--dir", "nowhere"], "no `anabranch up --brokers` runs in nowhere"),
    ],
)
def test_bad_words_are_one_line(words, sentence):
    done = anabranch("cluster", "roll", *words)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
