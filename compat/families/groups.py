"""`kafka-consumer-groups.sh`: groups listed, described, deleted; offsets reset in every way."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compat.families.console import CONSUMER, consume, fill
from compat.families.offsets import TIMES_MS, fill_at_times
from compat.families.topics import create
from compat.peer import Output, Peer
from compat.row import row

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
ALL_GROUPS = "org.apache.kafka.tools.GroupsCommand"
DAY_MS = 86_400_000
OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
RESET = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")


def groups(peer: Peer, *words: object, **options: Any) -> Output:
    """kafka-consumer-groups.sh with these words."""
    return peer.tool(GROUPS, *peer.at, *words, **options)


def described(peer: Peer, group: str) -> list[list[str]]:
    """Committed offsets, ends and lags of a group."""
    return groups(peer, "--describe", "--group", group).columns(*OFFSETS)


def reset(peer: Peer, group: str, *words: object) -> Output:
    """--reset-offsets of a group."""
    return groups(peer, "--reset-offsets", "--group", group, *words)


def commit(peer: Peer, group: str, topic: str, offset: int) -> None:
    """Make a group that has committed this offset in every partition of the topic."""
    reset(peer, group, "--topic", topic, "--to-offset", offset, "--execute")


@contextmanager
def member(peer: Peer, group: str, topic: str, *words: object) -> Iterator[None]:
    """A console consumer in the group, from when the group is stable."""
    at = (*peer.at, "--topic", topic, "--group", group, "--from-beginning", *words)
    with peer.background_tool(CONSUMER, *at) as running:

        def stable() -> bool:
            assert running.process.poll() is None, running.printed
            return "Stable" in groups(peer, "--describe", "--group", group, "--state").out

        peer.wait(stable, f"{group} is stable")
        yield


MODES: dict[str, tuple[str, tuple[object, ...]]] = {
    "to-earliest": ("to the earliest", ("--to-earliest",)),
    "to-latest": ("to the latest", ("--to-latest",)),
    "to-offset": ("to a given offset", ("--to-offset", 3)),
    "to-offset-clamped": ("to an offset beyond the end, which is the end", ("--to-offset", 99)),
    "shift-forth": ("forth by one", ("--shift-by", 1)),
    "shift-back": ("back by one", ("--shift-by", -1)),
    "shift-clamped": ("back beyond the beginning, which is the beginning", ("--shift-by", -99)),
    "to-datetime": ("to the first record since a moment", ("--to-datetime",)),
    "by-duration": ("to the first record since as long ago", ("--by-duration",)),
    "to-current": ("to where they are", ("--to-current",)),
}


def moment(mode: str, words: tuple[object, ...]) -> tuple[object, ...]:
    """The words of a mode, with a moment of 2015 where it wants one."""
    if mode == "to-datetime":
        return (*words, "2015-06-01T00:00:00.000")
    if mode == "by-duration":
        days = (int(time.time() * 1000) - (TIMES_MS[-1] - 1000 * DAY_MS)) // DAY_MS
        return (*words, f"P{days}D")
    return words


def register_mode(mode: str, where: str, words: tuple[object, ...]) -> None:
    """One row a reset mode: the plan changes nothing, the execution does what the plan says."""

    def observe(peer: Peer) -> object:
        topic, group = f"reset-{mode}", f"reset-{mode}"
        fill_at_times(peer, topic, 2)
        commit(peer, group, topic, 1)
        how = ("--topic", topic, *moment(mode, words))
        plan = reset(peer, group, *how, "--dry-run").columns(*RESET)
        between = described(peer, group)
        done = reset(peer, group, *how, "--execute").columns(*RESET)
        return plan, between, done, described(peer, group)

    observe.__doc__ = f"Committed offsets are reset {where}, first as a plan."
    row(f"groups-reset-{mode}")(observe)


for _mode, (_where, _words) in MODES.items():
    register_mode(_mode, _where, _words)


@row("groups-reset-from-file")
def resets_from_a_file(peer: Peer) -> object:
    """A plan is exported and executed from its file."""
    fill_at_times(peer, "reset-file", 2)
    commit(peer, "reset-file", "reset-file", 1)
    how = ("--topic", "reset-file", "--to-latest", "--dry-run", "--export")
    exported = reset(peer, "reset-file", *how)
    file = peer.file("plan.csv", exported.out)
    done = reset(peer, "reset-file", "--from-file", file, "--execute").columns(*RESET)
    return sorted(exported.lines), done, described(peer, "reset-file")


@row("groups-reset-scope")
def resets_some_partitions(peer: Peer) -> object:
    """One partition, all topics of a group, and a topic that it never committed are reset."""
    for topic in ("scope-a", "scope-b", "scope-c"):
        fill_at_times(peer, topic, 2)
    for topic in ("scope-a", "scope-b"):
        commit(peer, "scope", topic, 1)
    reset(peer, "scope", "--topic", "scope-a:1", "--to-latest", "--execute")
    one = described(peer, "scope")
    reset(peer, "scope", "--all-topics", "--shift-by", 1, "--execute")
    everything = described(peer, "scope")
    new = ("--topic", "scope-a:0", "--topic", "scope-c", "--to-earliest", "--execute")
    return one, everything, reset(peer, "scope", *new).columns(*RESET), described(peer, "scope")


@row("groups-reset-two-groups")
def resets_two_groups(peer: Peer) -> object:
    """Two groups are reset at once, and exported with their names."""
    fill_at_times(peer, "both", 1)
    for group in ("both-a", "both-b"):
        commit(peer, group, "both", 1)
    two = ("--group", "both-a", "--group", "both-b", "--topic", "both", "--to-latest")
    exported = groups(peer, "--reset-offsets", *two, "--dry-run", "--export")
    groups(peer, "--reset-offsets", *two, "--execute")
    return sorted(exported.lines), described(peer, "both-a"), described(peer, "both-b")


@row("groups-reset-active")
def refuses_to_reset_an_active_group(peer: Peer) -> object:
    """A group with a member is not reset."""
    create(peer, "reset-active")
    fill(peer, "reset-active", 5)
    with member(peer, "reset-active", "reset-active"):
        how = ("--topic", "reset-active", "--to-earliest", "--execute")
        output = reset(peer, "reset-active", *how)
    peer.say(output.out + output.err)
    return output.columns(*RESET), "Stable" in output.out


@row("groups-list")
def lists_groups(peer: Peer) -> object:
    """Groups are listed, with their state and type, and filtered by both."""
    fill_at_times(peer, "listed", 1)
    commit(peer, "listed-group", "listed", 1)
    ways = {
        "plain": (),
        "state": ("--state",),
        "type": ("--type",),
        "empty": ("--state", "Empty"),
        "stable": ("--state", "Stable"),
        "empty and dead": ("--state", "Empty,Dead"),
        "classic": ("--type", "classic"),
        "consumer": ("--type", "consumer"),
    }
    return {
        way: [line for line in groups(peer, "--list", *words).lines if "listed-group" in line]
        for way, words in ways.items()
    }


@row("groups-list-active")
def lists_active_groups(peer: Peer) -> object:
    """A group with a member is stable, and is listed as one of a consumer."""
    create(peer, "listed-active")
    with member(peer, "listed-active", "listed-active"):
        stable = groups(peer, "--list", "--state", "Stable")
        every = peer.tool(ALL_GROUPS, *peer.at, "--list")
        kinds = peer.tool(ALL_GROUPS, *peer.at, "--list", "--consumer")
        outputs = (stable, every, kinds)
        return [[line for line in each.lines if "listed-active" in line] for each in outputs]


@row("groups-list-bad-state")
def refuses_bad_states(peer: Peer) -> object:
    """A state and a type that do not exist are refused."""
    outputs = [
        groups(peer, "--list", *words, fails=True)
        for words in (("--state", "asleep"), ("--type", "private"))
    ]
    for output in outputs:
        peer.say(output.complaint)
    return [output.code for output in outputs]


@row("groups-describe-active")
def describes_an_active_group(peer: Peer) -> object:
    """A group of two members: offsets, members with assignments, state."""
    create(peer, "active", 4)
    fill(peer, "active", 20)
    first = ("--consumer-property", "client.id=first")
    second = (
        "--consumer-property",
        "client.id=second",
        "--consumer-property",
        "group.instance.id=s",
    )
    with member(peer, "active", "active", *first), member(peer, "active", "active", *second):
        peer.wait(lambda: len(members(peer)) == 2, "two members with partitions")
        peer.wait(lambda: not behind(peer), "every offset is committed")
        owners = groups(peer, "--describe", "--group", "active", "--offsets", "--verbose")
        state = groups(peer, "--describe", "--group", "active", "--state", "--verbose")
        return {
            "offsets": described(peer, "active"),
            "owners": owners.columns("PARTITION", "HOST", "CLIENT-ID"),
            "members": members(peer),
            "state": state.lines[1:],
        }


MEMBER = re.compile(r"active \S+-<uuid> (?:(s) )?(\S+) (\w+) (2) - active:")
"""Instance (blank without one, so that the columns move), host, client id, partitions."""


def members(peer: Peer) -> list[list[str]]:
    """Members of the group `active` that have two partitions each."""
    output = groups(peer, "--describe", "--group", "active", "--members", "--verbose")
    found = [MEMBER.match(line) for line in output.lines]
    return sorted([part or "" for part in each.groups()] for each in found if each)


def behind(peer: Peer) -> list[list[str]]:
    """Partitions of the group `active` that lag, or whose offsets are not committed."""
    return [each for each in described(peer, "active") if each[-1] != "0"]


@row("groups-describe-empty")
def describes_an_empty_group(peer: Peer) -> object:
    """A group without members: offsets, no members, state."""
    fill_at_times(peer, "empty", 2)
    commit(peer, "empty-group", "empty", 2)
    ways = ("--offsets", "--members", "--state")
    seen = [groups(peer, "--describe", "--group", "empty-group", way) for way in ways]
    for output in seen:
        peer.say(output.err)
    return [output.lines for output in seen]


@row("groups-describe-all")
def describes_all_groups(peer: Peer) -> object:
    """All groups are described at once."""
    fill_at_times(peer, "every", 1)
    for group in ("every-a", "every-b"):
        commit(peer, group, "every", 1)
    output = groups(peer, "--describe", "--all-groups")
    return [each for each in output.columns(*OFFSETS) if each[0].startswith("every-")]


@row("groups-describe-unknown")
def describes_no_unknown_group(peer: Peer) -> object:
    """A group that does not exist is refused, however it is asked for."""
    ways = ("--offsets", "--members", "--state")
    words = ("--describe", "--group", "nobody")
    seen = [groups(peer, *words, way) for way in ways]
    for output in seen:
        peer.say(output.out + output.err)
    return ["GroupIdNotFoundException" in output.out for output in seen]


@row("groups-delete")
def deletes_groups(peer: Peer) -> object:
    """Empty groups are deleted; an unknown one and an active one are refused."""
    fill_at_times(peer, "doomed", 1)
    for group in ("doomed-a", "doomed-b"):
        commit(peer, group, "doomed", 1)
    deleted = groups(peer, "--delete", "--group", "doomed-a", "--group", "doomed-b").lines
    listed = groups(peer, "--list").lines
    unknown = groups(peer, "--delete", "--group", "nobody")
    with member(peer, "doomed-active", "doomed"):
        active = groups(peer, "--delete", "--group", "doomed-active")
    for output in (unknown, active):
        peer.say(output.out + output.err)
    why = [re.findall(r"(\w+Exception)", output.out) for output in (unknown, active)]
    return sorted(deleted), [each for each in listed if each.startswith("doomed")], why


@row("groups-delete-offsets")
def deletes_offsets(peer: Peer) -> object:
    """Offsets of a topic and of a partition are deleted; those of a subscriber are kept."""
    for topic in ("forgot-a", "forgot-b"):
        fill_at_times(peer, topic, 2)
        commit(peer, "forgot", topic, 1)
    forget = ("--delete-offsets", "--group", "forgot")
    whole = groups(peer, *forget, "--topic", "forgot-a").columns("TOPIC", "PARTITION", "STATUS")
    part = groups(peer, *forget, "--topic", "forgot-b:1").columns("TOPIC", "PARTITION", "STATUS")
    rest = described(peer, "forgot")
    with member(peer, "forgot-active", "forgot-a"):
        active = ("--delete-offsets", "--group", "forgot-active", "--topic", "forgot-a")
        kept = groups(peer, *active)
        peer.say(kept.out)
    return whole, part, rest, kept.columns("TOPIC", "PARTITION", "STATUS")


@row("groups-delete-topic")
def forgets_a_deleted_topic(peer: Peer) -> object:
    """Offsets of a topic that is deleted go with it."""
    fill_at_times(peer, "vanishing", 1)
    fill_at_times(peer, "staying", 1)
    commit(peer, "vanishing", "vanishing", 1)
    commit(peer, "vanishing", "staying", 1)
    peer.tool("org.apache.kafka.tools.TopicCommand", *peer.at, "--delete", "--topic", "vanishing")
    peer.wait(lambda: len(described(peer, "vanishing")) == 1, "the offset of the topic is gone")
    return described(peer, "vanishing")


@row("groups-validate-regex")
def validates_a_pattern(peer: Peer) -> object:
    """A pattern is checked."""
    good = groups(peer, "--validate-regex", "to.*").lines
    return good, groups(peer, "--validate-regex", "to(.*").lines


@row("groups-consume-after-reset")
def consumes_after_a_reset(peer: Peer) -> object:
    """A consumer of the group starts at the reset offsets."""
    create(peer, "reset-read")
    fill(peer, "reset-read", 20)
    words = ("--topic", "reset-read", "--group", "reset-read", "--from-beginning")
    first = consume(peer, *words, "--max-messages", 10).lines
    reset(peer, "reset-read", "--topic", "reset-read", "--to-offset", 15, "--execute")
    return first, consume(peer, *words, "--max-messages", 5).lines
