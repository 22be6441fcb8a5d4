"""The drivers of the crowd rows: what they decide without a server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading


def test_a_group_is_stable_when_all_are_in_one_generation(module):
    progress = module("rebalance").Progress()
    progress.assigned = {0: (1, 5.0), 1: (2, 7.0)}
    assert progress.stable_since(range(3)) is None
    assert progress.stable_since(range(2)) is None
    progress.assigned[0] = 2, 6.0
    assert progress.stable_since(range(2)) == 7.0


def test_a_quick_run_does_a_tenth(module, monkeypatch):
    scale = module("scale")
    assert scale.scaled(500) == 500
    monkeypatch.setattr(scale.Scale, "divisor", scale.QUICK)
    assert (scale.scaled(500), scale.scaled(3)) == (50, 1)
    assert (scale.scaled_seconds(6.0), scale.scaled_seconds(1.5)) == (2.0, 1.0)


def test_an_offset_is_written_over_in_place(module):
    commits = module("commits")
    frame = module("lean").frame_of(commits.request_of("some"), commits.VERSION)
    assert frame.count(commits.OFFSET.pack(commits.MARK)) == 1
    assert int.from_bytes(frame[:4]) == len(frame) - 4


def serve(peer, answers):
    for each in answers:
        peer.sendall(each)


def answer(body, number=0):
    return (len(body) + 4).to_bytes(4) + number.to_bytes(4) + body


def test_a_crowd_counts_answers_and_refusals_across_torn_reads(module):
    lean = module("lean")
    ours, peer = socket.socketpair()
    with ours, peer:
        line = lean.Line(ours, bytearray(12))
        crowd = lean.Crowd([line], change=lambda _frame, _number: None)
        joined = answer(b"yes") + answer(b"no")
        threading.Thread(target=serve, args=(peer, (joined[:5], joined[5:]))).start()
        crowd.run(0.0, 2, b"yes")
        assert len(peer.recv(100)) == 24
    assert (crowd.sent, crowd.refused, len(crowd.taken_ms)) == (2, 1, 2)


def test_a_quantile_lies_among_the_figures(module):
    quantile = module("lean").quantile
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 1.0) == 3.0


def test_a_cleaner_checkpoint_is_read_as_kafka_writes_it(module):
    checkpointed = module("compaction").checkpointed
    text = "0\n2\nsome-topic 1 70\nsome-topic 0 90\n"
    assert checkpointed(text, "some-topic") == 90
    assert checkpointed(text, "some") is None
    assert checkpointed("", "some-topic") is None


def test_only_closed_segments_count_as_cleaned(module, tmp_path):
    for name, size in (("00.log", 10), ("05.log", 20), ("09.log", 40), ("05.index", 80)):
        (tmp_path / name).write_bytes(bytes(size))
    assert module("compaction").closed_bytes(tmp_path) == 30


def test_no_more_connections_are_held_than_the_limit_of_files_leaves(module):
    held = module("held")
    assert held.connections_to_hold(20_000, 65_536) == 20_000
    assert held.connections_to_hold(20_000, 20_000) == 20_000 - held.OWN_FILES
    assert held.connections_to_hold(20_000, 256) == 1


def test_a_server_is_measured_with_the_processes_that_it_starts(module):
    family_of = module("servers").family_of
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        family = family_of(os.getpid())
        assert family[0] == os.getpid()
        assert child.pid in family
        child.communicate(b"\n")
    assert child.pid not in family_of(os.getpid())
