"""What a client of librdkafka was waiting for when it did not end, read from its log.

Why: a close() that lasts for ever is a broker's fault where an answer is missing, or where a group
is told to try again and again. It is the library's where all its requests are answered and it asks
for nothing more (confluent-kafka-python's issue 1667 reports such hangs). Rule kept: in doubt it is
the broker's. Not here: that somebody did not end (`crowd`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DEBUG = "cgrp,protocol"
"""The setting `debug` of a client whose log can be read here."""
PRODUCER_DEBUG = "eos"
"""The same of an idempotent producer."""
LEVEL = 7
LINE = re.compile(
    r"%\d\|(?P<at>[\d.]+)\|(?P<kind>\w+)\|(?P<client>\S+)\| \[thrd:(?P<thread>.*?)\]: (?P<rest>.*)"
)
REQUEST = re.compile(r"Sent (?P<name>\w+)Request .*CorrId (?P<number>\d+)\)")
ANSWER = re.compile(r"Received \w+Response .*CorrId (?P<number>\d+)")
BOOTSTRAP = "/bootstrap"
"""The end of an address of which it is not known yet which broker it is."""
LONG_S = 5.0
"""A fetch waits no longer than this for records."""
RAISED = re.compile(r"skipped sequence numbers|epoch bump for \d+ partition")
"""What librdkafka says when it gives up the order of what it has under way, and why."""
NOT_RETURNED = "a call of a transactional producer did not return"
"""What a client of ours says when it leaves a producer of librdkafka behind."""
QUIET_S = 30.0
"""Whoever is told to try again does so much sooner."""
UNASKED = ("Fetch", "Heartbeat", "Metadata", "ApiVersion")
"""What goes on by itself, whether or not something is waited for."""


class Request(NamedTuple):
    """One that was sent."""

    number: int
    name: str
    at_s: float


def waits_for(log: Path, now_s: float) -> list[str]:
    """What its last client may have been waiting for at `now_s` (seconds of the wall clock).

    Requests without an answer, and those of the last half minute; none: it waited for no broker."""
    lines = [found for found in map(LINE.match, _lines(log)) if found]
    if not lines:
        return ["its log does not say what for"]
    client, open_by_thread, asked = "", dict[str, list[Request]](), list[Request]()
    for line in lines:
        if line["client"] != client:
            client, open_by_thread, asked = line["client"], {}, []
        thread = line["thread"]
        opened = open_by_thread.setdefault(thread, [])
        if not thread.endswith(BOOTSTRAP):  # once it has a name, nothing is waited for without
            open_by_thread.pop(thread.rpartition("/")[0] + BOOTSTRAP, None)
        if sent := REQUEST.search(line["rest"]):
            request = Request(int(sent["number"]), sent["name"], float(line["at"]))
            opened.append(request)
            asked.append(request)
        elif answered := ANSWER.search(line["rest"]):  # in order: earlier ones were another link's
            opened[:] = [each for each in opened if each.number > int(answered["number"])]
        elif line["kind"] == "FAIL" or "-ApiVersion" in line["rest"]:  # its connection is gone
            opened.clear()
    unanswered = [
        f"{each.name} to {thread} was sent {now_s - each.at_s:.0f} s before and not answered"
        for thread, opened in open_by_thread.items()
        for each in opened
        if now_s - each.at_s > LONG_S
    ]
    late = {each.name for each in asked if now_s - each.at_s < QUIET_S} - set(UNASKED)
    return unanswered + [f"it still sent {name}" for name in sorted(late)]


def last_words(log: Path) -> str:
    """What it said last of what it waits for itself; "" when it said nothing of that."""
    said = [found["rest"] for found in map(LINE.match, _lines(log)) if found]
    words = [each for each in said if "before terminating" in each] or said[-1:]
    return words[-1] if words else ""


def raised_epochs(log: Path) -> list[str]:
    """Why a producer raised its epoch, after which it may write again what is there: each cause."""
    return [line for line in _lines(log) if RAISED.search(line)]


def left_behind(log: Path) -> int:
    """How many producers its client left behind, since a call of theirs did not return."""
    return sum(line.startswith(NOT_RETURNED) for line in _lines(log))


def _lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines() if log.exists() else []
