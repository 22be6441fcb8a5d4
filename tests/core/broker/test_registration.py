"""A broker's life with its controller, decided without a clock or a connection."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.broker.registration_world import FOLDERS, Shell
from tests.core.controller.world import World

from anabranch.core.broker.registration.events import (
    Answered,
    Ask,
    ControllerFound,
    Event,
    FoldersChanged,
    GiveUp,
    Left,
    LogsOpen,
    Registered,
    Say,
    Serve,
    ShutDown,
    Start,
    Unanswered,
)
from anabranch.core.broker.registration.registration import (
    EAGER_HEARTBEATS,
    EAGER_MS,
    RETRY_MS,
    SHUTDOWN_MS,
    TABLE,
    State,
    Times,
)
from anabranch.core.controller.brokers.succession import older_folders
from anabranch.core.errors import Bug, ErrorCode, StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.log.incarnations import INCARNATIONS, FolderNotes
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.types import NEVER_MS
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from anabranch.core.wire.messages.broker_registration import BrokerRegistrationRequest
from anabranch.core.wire.metadata_records import RegisterBrokerRecord, UnregisterBrokerRecord

EVENTS = Event.__args__
CANNOT_HAPPEN = {
    (State.NEW, Answered),
    (State.NEW, Unanswered),
    (State.NEW, LogsOpen),
    (State.REGISTERING, LogsOpen),
    (State.ENTERING, LogsOpen),
    (State.UNFENCED, LogsOpen),
}
"""Beside a second start."""
TIMES = Times()


def started(**changes) -> Shell:
    shell = Shell(World(), **changes)
    shell.step(Start())
    return shell


def let_in(**changes) -> Shell:
    shell = started(**changes)
    shell.read()
    shell.step(LogsOpen())
    shell.read()
    assert shell.machine.state is State.UNFENCED
    return shell


def test_every_pair_of_state_and_event_is_in_the_table_or_cannot_happen():
    missing = {
        (state, event)
        for state, event in itertools.product(State, EVENTS)
        if event not in TABLE[state]
    }
    starts = {(state, Start) for state in State if state is not State.NEW}
    assert missing == CANNOT_HAPPEN | starts


@pytest.mark.parametrize("event", [LogsOpen(), Start()])
def test_an_event_that_cannot_happen_raises(event):
    with pytest.raises(Bug, match=f"{type(event).__name__} in state UNFENCED"):
        let_in().step(event)


def test_a_broker_is_let_in_when_its_logs_are_open_and_it_has_read_its_registration():
    shell = started()
    assert shell.of(Registered) == [Registered(shell.registered.epoch)]
    shell.read()
    shell.pass_time(10_000)
    assert shell.registered.fenced
    assert all(each.want_fence for each in shell.of(BrokerHeartbeatRequest))
    assert shell.of(Serve) == []
    shell.step(LogsOpen())
    assert not shell.registered.fenced
    assert shell.of(Serve) == [], "its own metadata does not show it yet"
    shell.read()
    shell.read()
    assert shell.of(Serve) == [Serve()]


def test_a_broker_that_does_not_follow_the_metadata_is_not_let_in():
    shell = started()
    shell.step(LogsOpen())
    shell.pass_time(5_000, reads=False)
    assert shell.registered.fenced
    shell.pass_time(2 * RETRY_MS)
    assert not shell.registered.fenced


def test_the_pauses_of_a_broker_that_waits_grow():
    shell = started()
    shell.step(LogsOpen())
    before = len(shell.of(BrokerHeartbeatRequest))
    shell.pass_time(10_000, reads=False)
    count = len(shell.of(BrokerHeartbeatRequest)) - before
    assert EAGER_HEARTBEATS < count < EAGER_HEARTBEATS + 10_000 // RETRY_MS + 2


def test_heartbeats_come_at_their_interval_and_at_once_when_there_is_news():
    shell = let_in()
    shell.sent.clear()
    shell.pass_time(10_000)
    assert len(shell.sent) == 5
    shell.step(ControllerFound())
    assert len(shell.sent) == 6
    shell.standing.partitions.offline_folders.add("/b")
    shell.step(FoldersChanged())
    assert shell.sent[-1].offline_log_dirs == [FOLDERS["/b"]]
    assert shell.registered.log_dirs == (FOLDERS["/a"],)
    shell.standing.partitions.full_folders.add("/a")
    shell.step(FoldersChanged())
    assert shell.registered.full_log_dirs == (FOLDERS["/a"],)


def test_news_during_a_heartbeat_is_told_by_the_next_at_once():
    shell = let_in()
    shell.is_cut_off = True
    shell.step(ControllerFound())
    shell.standing.partitions.offline_folders.add("/b")
    shell.step(FoldersChanged())
    assert len(shell.waiting) == 1, "one request is under way at a time"
    shell.is_cut_off = False
    (ask,) = shell.waiting
    shell.step(Answered(ask, shell.world.ask(ask.request)))
    assert shell.registered.log_dirs == (FOLDERS["/a"],)


def test_a_failed_folder_that_nobody_hears_of_stops_the_process():
    shell = let_in(times=Times(folder_failure_ms=30_000))
    shell.is_cut_off = True
    shell.standing.partitions.offline_folders.add("/b")
    shell.step(FoldersChanged())
    shell.pass_time(30_000)
    assert shell.of(GiveUp) == []
    shell.pass_time(1)
    (gives_up,) = shell.of(GiveUp)
    assert gives_up.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert gives_up.sentence == (
        "a log folder failed, and no controller could be informed within 30000 ms "
        "(log.dir.failure.timeout.ms)"
    )
    assert shell.machine.next_tick_ms == NEVER_MS


def test_a_folder_that_was_told_or_left_out_of_a_registration_stops_nobody():
    shell = let_in()
    shell.standing.partitions.offline_folders.add("/b")
    shell.step(FoldersChanged())
    shell.pass_time(100_000)
    epoch = shell.machine.broker_epoch
    shell.world.commit([UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch)])
    shell.read()
    shell.pass_time(100_000)
    assert shell.registered.log_dirs == (FOLDERS["/a"],)
    assert shell.of(GiveUp) == []


def test_a_controller_that_is_away_ends_the_first_registration_in_time():
    shell = Shell(World(), unreachable=lambda: "nothing listens there")
    shell.is_cut_off = True
    shell.step(Start())
    shell.pass_time(59_999)
    assert shell.of(GiveUp) == []
    shell.pass_time(1)
    assert shell.of(GiveUp) == [
        GiveUp(
            ErrorCode.REQUEST_TIMED_OUT,
            "broker 1 could not register within 60000 ms "
            "(initial.broker.registration.timeout.ms): nothing listens there; check that a "
            "controller runs at one of controller.quorum.bootstrap.servers",
        )
    ]


def beside(first, second, ms):
    """Time goes by for a second process while the first one sends its heartbeats."""
    for _ in range(ms // RETRY_MS):
        first.pass_time(RETRY_MS)
        second.pass_time(0)


def test_a_second_process_takes_the_place_of_a_first_that_falls_silent():
    first = let_in()
    second = Shell(first.world, incarnation=2)
    second.step(Start())
    beside(first, second, 1_000)
    (said,) = second.of(Say)
    assert "another live broker has node.id=1" in said.why
    assert first.registered.incarnation_id == b"\1" * 16
    second.pass_time(TIMES.session_ms)
    assert second.registered.incarnation_id == b"\2" * 16, "the first was silent for a session"
    assert second.of(GiveUp) == []


def test_a_second_process_stops_when_the_first_outlives_a_session():
    first = let_in()
    second = Shell(first.world, incarnation=2)
    second.step(Start())
    beside(first, second, TIMES.session_ms)
    assert second.of(GiveUp) == []
    beside(first, second, 15_000 - TIMES.session_ms)
    assert len(second.of(GiveUp)) == 1
    (gives_up,) = second.of(GiveUp)
    assert gives_up.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "another live broker has node.id=1" in gives_up.sentence
    assert first.of(GiveUp) == []


def test_a_new_controller_gives_a_refused_process_a_whole_session_more():
    """The controller that takes over has heard of nobody: it keeps the old session for as long."""
    first = let_in()
    second = Shell(first.world, incarnation=2)
    second.step(Start())
    beside(first, second, TIMES.session_ms)
    second.step(ControllerFound())
    beside(first, second, TIMES.session_ms)
    assert second.of(GiveUp) == []
    beside(first, second, TIMES.session_ms)
    assert len(second.of(GiveUp)) == 1


def test_an_answer_that_took_long_begins_the_wait_anew():
    """Another controller may have taken over meanwhile, though this node has not met it."""
    first = let_in()
    second = Shell(first.world, incarnation=2)
    second.step(Start())
    beside(first, second, TIMES.session_ms)
    second.is_cut_off = True
    beside(first, second, 5_000)
    second.is_cut_off = False
    (ask,) = second.waiting
    second.step(Answered(ask, first.world.ask(ask.request)))
    assert second.of(GiveUp) == []
    beside(first, second, TIMES.session_ms)
    assert second.of(GiveUp) == []
    beside(first, second, TIMES.session_ms)
    assert len(second.of(GiveUp)) == 1


@given(st.integers(0, TIMES.heartbeat_ms), st.integers(0, 3_000))
@settings(max_examples=30, deadline=None)
def test_a_node_that_restarts_is_never_taken_for_its_own_twin(since_heartbeat_ms, down_ms):
    first = let_in()
    first.pass_time(20_000 + since_heartbeat_ms)
    second = Shell(first.world, incarnation=2)
    first.world.now_ms += down_ms
    second.step(Start())
    second.pass_time(TIMES.session_ms + RETRY_MS)
    assert second.of(GiveUp) == []
    assert second.registered.incarnation_id == b"\2" * 16


def test_a_process_whose_place_was_taken_stops_when_its_metadata_says_so():
    shell = let_in()
    taken = shell.registered
    shell.world.commit(
        [
            RegisterBrokerRecord(
                broker_id=1, incarnation_id=b"another process.", broker_epoch=taken.epoch + 100
            )
        ]
    )
    shell.pass_time(60_000, reads=False)
    assert shell.machine.state is State.STALE, "its metadata does not say why yet"
    shell.read()
    (gives_up,) = shell.of(GiveUp)
    assert "another process registered as broker 1" in gives_up.sentence


def test_a_broker_that_was_unregistered_registers_anew_and_names_its_last_epoch():
    shell = let_in()
    epoch = shell.machine.broker_epoch
    shell.world.commit([UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch)])
    shell.read()
    shell.pass_time(3_000)
    request = shell.of(BrokerRegistrationRequest)[-1]
    assert request.previous_broker_epoch == epoch
    assert request.incarnation_id == shell.machine.identity.incarnation_id
    assert shell.machine.broker_epoch > epoch
    assert shell.machine.state is State.UNFENCED


def test_a_refusal_of_another_registration_ends_the_process():
    shell = let_in()
    shell.world.commit(
        [UnregisterBrokerRecord(broker_id=1, broker_epoch=shell.machine.broker_epoch)]
    )
    shell.read()
    other = Shell(shell.world, incarnation=2)
    other.step(Start())
    shell.pass_time(3_000, reads=False)
    (gives_up,) = shell.of(GiveUp)
    assert gives_up.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_an_answer_to_what_is_not_asked_any_more_changes_nothing():
    shell = let_in()
    shell.is_cut_off = True
    shell.step(ControllerFound())
    (old,) = shell.waiting
    shell.step(ShutDown())
    refused = SimpleNamespace(error_code=int(ErrorCode.STALE_BROKER_EPOCH), should_shut_down=True)
    shell.step(Answered(old, refused))
    shell.step(Unanswered(old, "late"))
    assert shell.machine.state is State.LEAVING
    assert shell.of(Left) == []


def test_a_confirmed_heartbeat_counts_from_when_it_was_asked():
    shell = let_in()
    shell.is_cut_off = True
    asked_ms = shell.world.now_ms
    shell.step(ControllerFound())
    shell.is_cut_off = False
    shell.world.now_ms += 700
    (ask,) = shell.waiting
    assert shell.machine.confirmed_ms <= asked_ms
    shell.step(Answered(ask, shell.world.ask(ask.request)))
    assert shell.machine.confirmed_ms == asked_ms


def test_a_broker_leaves_when_its_leaderships_have_moved():
    world = World()
    other = Shell(world, incarnation=7, node_id=2, directories={"/c": b"c" * 16})
    shell = Shell(world)
    for each in (shell, other):
        each.step(Start())
        each.read()
        each.step(LogsOpen())
        each.read()
    world.create("t", [1, 2])
    shell.read()
    other.read()
    shell.step(ShutDown())
    assert shell.of(Left) == [], "the other broker has not read that it leads"
    assert world.partition("t").leader == 2
    other.read()
    other.pass_time(2_000)
    shell.pass_time(2 * RETRY_MS)
    assert shell.of(Left) == [Left("")]
    assert shell.registered.fenced


STALE = SimpleNamespace(error_code=int(ErrorCode.STALE_BROKER_EPOCH), should_shut_down=False)


def leaving() -> Shell:
    """A broker that has asked whether it may stop, and waits for the answer."""
    shell = let_in()
    shell.is_cut_off = True
    shell.step(ShutDown())
    return shell


def test_the_refusal_of_a_controller_that_was_replaced_is_no_permission_to_stop():
    """Schedule 43050187: it was suspended, and knew an older registration of the broker."""
    shell = leaving()
    (ask,) = shell.waiting
    shell.step(Answered(ask, STALE))
    assert shell.of(Left) == []
    shell.is_cut_off = False
    shell.pass_time(2 * RETRY_MS)
    assert shell.of(Left) == [Left("")]
    assert shell.registered.fenced


def test_a_broker_whose_registration_ended_leaves_when_it_is_refused():
    shell = leaving()
    (ask,) = shell.waiting
    epoch = shell.machine.broker_epoch
    shell.world.commit([UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch)])
    shell.read()
    shell.step(Answered(ask, STALE))
    assert shell.of(Left) == [Left("")]


def test_a_controlled_shutdown_ends_without_an_answer_too():
    shell = let_in()
    shell.is_cut_off = True
    shell.step(ShutDown())
    shell.pass_time(SHUTDOWN_MS - 1)
    assert shell.of(Left) == []
    shell.pass_time(1)
    assert shell.of(Left) == [Left("no answer")]


@pytest.mark.parametrize("is_started", [False, True])
def test_a_process_that_never_registered_leaves_at_once(is_started):
    shell = Shell(World())
    shell.is_cut_off = True
    if is_started:
        shell.step(Start())
    shell.step(ShutDown())
    assert shell.of(Left) == [Left("")]


ANYTHING = st.lists(
    st.sampled_from(
        ["answer", "lose", "read", "open", "cut", "mend", "fail", "full", "found", "wait",
         "unregister", "long", "late"]
    ),
    max_size=60,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(ANYTHING)
def test_whatever_happens_the_rules_hold_and_a_healthy_cluster_lets_the_broker_in(happenings):
    shell = Shell(World(), times=Times(registration_timeout_ms=10**9, folder_failure_ms=10**9))
    shell.is_cut_off = True
    shell.step(Start())
    opened = False
    for what in happenings:
        opened = happen(shell, what, opened)
        check(shell, opened)
    shell.is_cut_off = False
    shell.lose()
    for _ in range(4):
        opened = happen(shell, "open", opened)
        shell.read()
        shell.pass_time(5_000)
    assert shell.machine.state is State.UNFENCED
    assert not shell.registered.fenced
    failed = {FOLDERS[each] for each in shell.standing.partitions.offline_folders}
    assert failed.isdisjoint(shell.registered.log_dirs)


def happen(shell: Shell, what: str, opened: bool) -> bool:
    machine, world = shell.machine, shell.world
    if what == "open" and not opened and machine.broker_epoch >= 0:
        shell.step(LogsOpen())
        return True
    if what in ("answer", "late") and shell.waiting:
        ask: Ask = shell.waiting.pop(0 if what == "late" else -1)
        shell.step(Answered(ask, world.ask(ask.request)))
    elif what == "lose":
        shell.lose()
    elif what == "read":
        shell.read()
    elif what in ("cut", "mend"):
        shell.is_cut_off = what == "cut"
    elif what == "fail":
        shell.standing.partitions.offline_folders.add("/b")
        shell.step(FoldersChanged())
    elif what == "full":
        shell.standing.partitions.full_folders ^= {"/a"}
        shell.step(FoldersChanged())
    elif what == "found":
        shell.step(ControllerFound())
    elif what in ("wait", "long"):
        shell.pass_time(50 if what == "wait" else 20_000, reads=False)
    elif what == "unregister" and shell.registered is not None:
        record = UnregisterBrokerRecord(broker_id=1, broker_epoch=shell.registered.epoch)
        world.commit([record])
    return opened


def check(shell: Shell, opened: bool) -> None:
    machine = shell.machine
    assert not shell.of(GiveUp)
    heartbeats = shell.of(BrokerHeartbeatRequest)
    if heartbeats and not opened:
        assert all(each.want_fence for each in heartbeats)
    if shell.registered is not None and not shell.registered.fenced:
        assert opened
        assert shell.registered.epoch <= max(
            (each.current_metadata_offset for each in heartbeats), default=-1
        )
    if machine.state in (State.UNFENCED, State.ENTERING, State.FENCED):
        assert machine.broker_epoch >= 0
    assert len(shell.waiting) <= 1 or shell.waiting[-1] is machine._in_flight
    assert machine.confirmed_ms <= shell.world.now_ms


def test_a_broker_that_is_found_fenced_asks_again_soon():
    shell = let_in()
    shell.is_cut_off = True
    shell.step(ControllerFound())
    (ask,) = shell.waiting
    fenced = SimpleNamespace(error_code=0, is_fenced=True, should_shut_down=False)
    shell.step(Answered(ask, fenced))
    assert shell.machine.state is State.ENTERING
    assert shell.machine.next_tick_ms == shell.world.now_ms + EAGER_MS


class Failing(MemoryFiles):
    """Folders whose disks fail."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()
        for folder in FOLDERS:
            self.make_dirs(folder)

    def read(self, path):
        if any(path.startswith(folder) for folder in self.broken):
            raise StorageFault(f"{path}: input/output error")
        return super().read(path)


class Full(Failing):
    """Folders whose disks are full."""

    is_full = True

    def write_atomic(self, path, data, *, sync):
        if self.is_full:
            raise DiskFull(f"{path}: no space")
        super().write_atomic(path, data, sync=sync)

    def accounts(self):
        return sum(self.exists(f"{folder}/{INCARNATIONS}") for folder in FOLDERS)


@pytest.mark.parametrize("broken", sorted(FOLDERS))
def test_a_life_does_without_a_folder_that_it_cannot_read_and_nothing_in_it_is_older(
    broken,
):
    """A disk that fails between a process's start and its registration, and is repaired later."""
    world, files = World(), Failing()
    for incarnation, failing in enumerate(((), (broken,), ()), 1):
        files.broken = set(failing)
        shell = Shell(world, incarnation=incarnation, notes=FolderNotes(files, FOLDERS))
        before = shell.registered
        shell.step(Start())
        (request,) = shell.of(BrokerRegistrationRequest)
        assert before is None or not older_folders(before, request)
        works = [known for folder, known in FOLDERS.items() if folder not in failing]
        assert shell.registered.log_dirs == tuple(works)
        assert shell.standing.partitions.offline_folders == set(failing)
        world.now_ms += 2 * TIMES.session_ms


def test_a_folder_that_took_no_account_takes_it_with_a_heartbeat_once_it_has_room():
    files = Full()
    shell = started(notes=FolderNotes(files, FOLDERS))
    assert not files.accounts()
    shell.standing.partitions.full_folders = set(FOLDERS)
    files.is_full = False
    shell.pass_time(TIMES.heartbeat_ms)
    assert not files.accounts(), "it is not tried while it counts as full"
    shell.standing.partitions.full_folders = set()
    shell.pass_time(TIMES.heartbeat_ms)
    assert files.accounts() == len(FOLDERS)


def test_a_broker_that_can_read_none_of_its_folders_gives_up_and_says_so():
    files = Failing()
    started(notes=FolderNotes(files, FOLDERS))
    files.broken = set(FOLDERS)
    shell = started(notes=FolderNotes(files, FOLDERS))
    (end,) = shell.of(GiveUp)
    assert end.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "input/output error" in end.sentence and "Repair" in end.sentence
    assert shell.sent == []
