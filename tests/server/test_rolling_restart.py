"""R18: each of three processes is stopped and started in turn, and no client has to notice."""

from __future__ import annotations

import signal

import pytest
from tests.clients.members import until
from tests.server import three_kit as kit
from tests.server.node_kit import START_SECONDS


@pytest.fixture
def processes(tmp_path):
    with kit.running(kit.three_processes(tmp_path)) as started:
        yield started


def restart(node, bootstrap):
    node.process.send_signal(signal.SIGTERM)
    _, errors = node.process.communicate(timeout=START_SECONDS)
    assert node.process.returncode == 0, errors
    assert "without the controller's permission" not in errors
    node.start().ready()
    until(lambda: kit.is_whole(bootstrap))


def test_r18_a_rolling_restart_fails_no_write_and_leaves_no_partition_alone(processes):
    bootstrap = kit.bootstrap_of(processes)
    kit.create_both(bootstrap)
    watches = [kit.Watch(node.bootstrap) for node in processes.values()]
    acks = kit.Acks(bootstrap)
    try:
        for node in processes.values():
            before = len(acks.times)
            restart(node, bootstrap)
            until(lambda: len(acks.times) > before + 100)  # noqa: B023 - called in this turn
    finally:
        acks.stop()
        for watch in watches:
            watch.stop()
    assert not acks.failures
    assert [(watch.seen, watch.refusals) for watch in watches] == [([], [])] * len(kit.IDS)
    assert min(watch.looks for watch in watches) > 10
    assert kit.count_of(bootstrap) == len(acks.times)
    gap = acks.longest_gap_s()
    print(f"{len(acks.times)} acks, longest gap {gap:.3f} s, {[w.looks for w in watches]} looks")
    assert gap < kit.LONGEST_GAP_S
