"""The loop that drains what a step leaves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.core.errors import StorageFault
from anabranch.core.step import Mailbox, Performer, Wish, drain
from anabranch.core.types import TopicPartition

PLACE = TopicPartition("t", 0)


SILENT = SimpleNamespace(flush=lambda: None)
"""A connection with an answer, which nothing follows from."""


class Noted(Performer):
    """Writes down what it is asked to do, and is a connection itself; `leaves` says what each act
    leaves, once."""

    def __init__(self, left, **leaves):
        self.left, self.leaves, self.acts = left, leaves, []
        left.ready = [self for _ in left.ready]
        left.due.performs("machine", self.perform)

    def flush(self):
        self.note("send")

    def note(self, act, told=None):
        self.acts.append(act if told is None else (act, told))
        self.leaves.pop(act, lambda: None)()

    def wake_waiting(self, keys):
        self.note("wake", list(keys))

    def take_faults(self):
        self.left.faults.clear()
        self.note("faults")

    def sync_logs(self):
        self.left.unsynced.clear()
        self.note("sync")

    def load_groups(self):
        self.left.to_load.clear()
        self.note("load")

    def perform(self):
        self.note("perform")

    def grant(self, wish):
        self.note("grant", wish.message)


def full_mailbox():
    left = Mailbox()
    left.changed["key"] = None
    left.ready.append(SILENT)
    left.faults.append((None, StorageFault("gone")))
    left.unsynced.add(PLACE)
    left.to_load.append("shard")
    left.wishes.append(Wish("create", lambda: None))
    return left


def test_everything_is_done_once_and_in_order():
    left = full_mailbox()
    performer = Noted(left)
    drain(left, performer)
    assert performer.acts == [
        ("wake", ["key"]), "send", "faults", "sync", "load",
        "perform", ("grant", "create"),
    ]  # fmt: skip
    others = {"woken_by", "arriving_bytes", "due"}
    assert not any(getattr(left, name) for name in set(Mailbox.__slots__) - others)
    assert not left.due.marked


def test_a_machine_is_performed_although_no_key_has_changed_and_never_when_it_is_idle():
    performer = Noted(Mailbox())
    drain(performer.left, performer)
    assert performer.acts == ["perform"]
    drain(performer.left, performer)
    assert performer.acts == ["perform"]


def test_keys_are_told_in_the_order_in_which_they_came():
    left = Mailbox()
    performer = Noted(left)
    for key in ("b", "c", "a", "b"):
        left.changed[key] = None
    drain(left, performer)
    assert performer.acts[0] == ("wake", ["b", "c", "a"])


@pytest.mark.parametrize("act", ["wake", "send", "faults", "sync", "perform", "grant"])
@pytest.mark.parametrize(
    ("name", "what"),
    [("changed", "news"), ("ready", SILENT), ("unsynced", PLACE)],
)
def test_what_an_act_leaves_belongs_to_the_same_step(act, name, what):
    left = full_mailbox()
    into = getattr(left, name)

    def leave():
        box = getattr(left, name)
        if isinstance(into, dict):
            box[what] = None
        else:
            box.add(what) if isinstance(into, set) else box.append(what)

    performer = Noted(left, **{act: leave})
    drain(left, performer)
    assert not getattr(left, name)
    assert not performer.leaves


def test_a_drain_within_a_drain_leaves_it_to_the_outer_one():
    left = full_mailbox()

    def again():
        left.changed["more"] = None
        drain(left, performer)

    performer = Noted(left, sync=again)
    drain(left, performer)
    assert performer.acts.count("perform") == 1
    assert ("wake", ["more"]) in performer.acts


def test_a_drain_that_failed_may_be_followed_by_another():
    left = full_mailbox()

    def fail():
        raise RuntimeError("oh")

    performer = Noted(left, faults=fail)
    with pytest.raises(RuntimeError):
        drain(left, performer)
    drain(left, performer)
    assert performer.acts[-2:] == ["perform", ("grant", "create")]


def test_what_hangs_on_a_key_is_woken_with_it():
    left = Mailbox()
    left.woken_by = lambda keys: [*keys, "hangs on it"]
    left.changed["key"] = None
    performer = Noted(left)
    drain(left, performer)
    assert performer.acts[0] == ("wake", ["key", "hangs on it"])
