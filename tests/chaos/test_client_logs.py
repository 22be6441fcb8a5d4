"""R17: a client that does not end is the library's fault only where it waits for no broker."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import ExitStack

import pytest
from chaos.client_logs import UNASKED, last_words, waits_for
from chaos.crowd import Crowd, Part

from anabranch.testing import LocalCluster

MEMBER = Part("m", "confluent", "member", "t", ("--group", "g"))
NOW = 1000.0
CLOSED = 'Group "g": waiting for assign call, 6 toppar(s) before terminating'


def line(at_s, kind, rest, *, thread="GroupCoordinator", client="m#consumer-1"):
    return f"%7|{at_s:.3f}|{kind}|{client}| [thrd:{thread}]: {rest}\n"


def sent(at_s, name, number, **more):
    rest = f"{more.get('thread', 'GroupCoordinator')}/1: Sent {name}Request (v9, 9 bytes @ 0, CorrId {number})"
    return line(at_s, "SEND", rest, **more)


def answered(at_s, name, number, **more):
    rest = f"GroupCoordinator/1: Received {name}Response (v9, 9 bytes, CorrId {number}, rtt 1.00ms)"
    return line(at_s, "RECV", rest, **more)


@pytest.mark.parametrize(
    ("lines", "waited"),
    [
        ([sent(900, "OffsetCommit", 7)], "OffsetCommit to GroupCoordinator was sent 100 s before"),
        ([sent(900, "OffsetCommit", 7), answered(990, "OffsetCommit", 7)], "it still sent"),
        ([sent(980, "JoinGroup", 7), answered(981, "JoinGroup", 7)], "it still sent JoinGroup"),
        ([sent(980, "Fetch", 3, thread="b1")], "Fetch to b1 was sent 20 s before"),
        ([sent(900, "Fetch", 3), sent(900, "Fetch", 4), answered(900, "Fetch", 3)], "Fetch to"),
        ([sent(900, "Fetch", 3, thread="a"), answered(901, "Fetch", 3, thread="b")], "Fetch to a"),
        ([sent(900, "LeaveGroup", 3), line(901, "FAIL", "gone", thread="b1")], "LeaveGroup to"),
        (["Traceback (most recent call last)\n"], "its log does not say"),
        ([], "its log does not say"),
    ],
)  # fmt: skip
def test_who_waits_for_a_broker_is_no_fault_of_the_library(tmp_path, lines, waited):
    log = tmp_path / "m.log"
    log.write_text("".join(lines))
    if lines[-1:] == [answered(990, "OffsetCommit", 7)]:
        log.write_text(log.read_text() + sent(990, "OffsetCommit", 8) + answered(990, "x", 8))
    assert waited in "; ".join(waits_for(log, NOW))


@pytest.mark.parametrize(
    "lines",
    [
        [sent(900, "OffsetCommit", 7), answered(901, "OffsetCommit", 7)],
        [sent(900, "OffsetCommit", 7), sent(902, "Fetch", 8), answered(903, "Fetch", 8)],
        [sent(900, "LeaveGroup", 7), line(901, "FAIL", "Disconnected")],
        [sent(900, "ApiVersion", 1), line(902, "FEATURE", "Updated protocol features -ApiVersion")],
        [sent(900, "Metadata", 1, thread="a:1/bootstrap"), sent(901, "Metadata", 1, thread="a:1/3"),
         answered(901, "Metadata", 1, thread="a:1/3")],
        [sent(998, "Fetch", 7, thread="b1"), sent(999, "Heartbeat", 8)],
        [sent(900, "OffsetCommit", 7, client="m#consumer-1"),
         sent(950, "Fetch", 1, client="m#consumer-2"),
         answered(950, "Fetch", 1, client="m#consumer-2")],
    ],
)  # fmt: skip
def test_who_was_answered_and_asks_for_nothing_waits_for_himself(tmp_path, lines):
    log = tmp_path / "m.log"
    log.write_text("".join(lines))
    assert waits_for(log, NOW) == []


def test_a_producer_that_raised_its_epoch_says_why(tmp_path):
    crowd = Crowd(tmp_path, seed=1, parts=[Part("p", "confluent", "producer", "t")])
    said = [
        line(1, "ERRSEQ", "t [3] failed due to skipped sequence numbers (base seq 9 > next seq 7)"),
        line(2, "DRAIN", "Beginning partition drain for epoch bump for 2 partition(s)"),
        line(3, "IDEMPSTATE", "Idempotent producer state change"),
    ]
    (tmp_path / "p.log").write_text("".join(said))
    (client,) = crowd.clients
    client.process, client.lives = Asleep(), 1
    client.process.returncode = 0
    crowd.end("producer")
    assert [each.rpartition("| ")[2] + "\n" for each in crowd.remarks] == [
        each.rpartition("| ")[2] for each in said[:2]
    ]


class Asleep:
    """In the place of a client's process: one that nothing ends but SIGKILL."""

    returncode = None

    def poll(self):
        return self.returncode

    def send_signal(self, number):
        """SIGCONT and SIGTERM do nothing to it."""

    def wait(self, seconds=None):
        if self.returncode is None:
            raise subprocess.TimeoutExpired("m", seconds)
        return self.returncode

    def kill(self):
        self.returncode = -signal.SIGKILL


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_hang_of_the_library_is_a_remark_and_any_other_an_anomaly(tmp_path, is_answered):
    crowd = Crowd(tmp_path, seed=1, parts=[MEMBER])
    (client,) = crowd.clients
    client.process = Asleep()
    client.lives = 1
    long_ago_s = time.time() - 100
    text = sent(long_ago_s, "OffsetCommit", 7) + line(long_ago_s, "CGRPTERM", CLOSED)
    if is_answered:
        text += answered(long_ago_s, "OffsetCommit", 7)
    (tmp_path / "m.log").write_text(text)
    client.history.write_text("hello")
    crowd.end("member")
    said = crowd.remarks if is_answered else crowd.surprises
    assert len(crowd.remarks) + len(crowd.surprises) == 1
    assert said[0].startswith("client m did not end when it was asked to")
    assert (CLOSED if is_answered else "OffsetCommit") in said[0]


@pytest.mark.slow
def test_a_real_log_tells_what_was_not_answered(tmp_path):
    crowd = Crowd(tmp_path / "histories", seed=1, parts=[MEMBER])
    log = crowd.folder / "m.log"
    with LocalCluster(processes=True, folder=tmp_path / "nodes") as cluster, ExitStack() as ends:
        ends.callback(crowd.abandon)
        cluster.create_topic("t", partitions=1)
        crowd.start(cluster.bootstrap_servers)
        wait_until(lambda: "Received Fetch" in log.read_text())
        cluster.pause(1)
        wait_until(lambda: any("not answered" in each for each in waits_for(log, time.time())))
        cluster.resume(1)
        wait_until(lambda: not any("not ans" in each for each in waits_for(log, time.time())))
        crowd.end("member")
    assert (crowd.surprises, crowd.remarks) == ([], [])
    assert "Received LeaveGroup" in log.read_text()
    assert "before terminating" in last_words(log)
    waited = waits_for(log, time.time() + 100)
    assert {each.split()[0] for each in waited} <= set(UNASKED)  # given up when it closed


def wait_until(is_so, seconds=30.0):
    """Fails when it has not become so in time."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)
