"""Who may take a broker's place, and what older folders are worth: every history of a few steps."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.core.controller.test_directories import assign
from tests.core.controller.test_in_sync import UNCLEAN, elect
from tests.core.controller.world import World

from anabranch.core.controller.brokers.hints import MOST_HINTS, PROBE_AFTER_MS, Answer
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.wire.messages.broker_registration import Listener
from anabranch.core.wire.own_fields import FolderHistory, SeenFolder, tagged

DUPLICATE = ErrorCode.DUPLICATE_BROKER_REGISTRATION
ELSEWHERE = [Listener(name="PLAINTEXT", host="h", port=9099)]
NEW_FOLDER = [bytes([200]) * 16]
SESSION_MS = 9_000


def incarnation(broker_id: int, number: int) -> bytes:
    return bytes([broker_id, number]) * 8


def seen(*numbers: int, broker_id: int = 1, folder: int = 100) -> dict[int, bytes]:
    """What a broker's folder tells that has seen these incarnations."""
    ids = [incarnation(broker_id, each) for each in numbers]
    directory_id = bytes([folder + broker_id]) * 16
    one = SeenFolder(directory_id=directory_id, incarnation_ids=ids)
    return tagged(FolderHistory(folders=[one]))


def beat(world: World) -> None:
    world.now_ms += 1
    world.beat(1)


def close(world: World) -> None:
    world.now_ms += 1
    world.controller.connection_closed(1, world.image.brokers[1].epoch, world.now_ms)


def answered(world: World, answer: Answer) -> None:
    """Whoever is to be dialled was dialled."""
    world.now_ms += 1
    for probe in world.controller.take_probes():
        world.commit_result(world.controller.probed(probe, answer, world.now_ms))


STEPS = {
    "beat": beat,
    "close": close,
    "refused": lambda world: answered(world, Answer.REFUSED),
    "same": lambda world: answered(world, Answer.SAME),
}


@pytest.mark.parametrize("history", list(itertools.product(STEPS, repeat=4)), ids="-".join)
@pytest.mark.parametrize("at", ["its place", "elsewhere"])
def test_a_broker_that_was_heard_since_its_connection_closed_is_never_displaced(
    history: tuple[str, ...], at: str
) -> None:
    """A process on a copy of the folders registers after any history. It is let in only when the
    connection closed and nothing was heard since, and then only when nobody answers there, or when
    the process has that address itself."""
    world = World()
    world.start(1)
    closed = gone = dialled = False
    for step in history:
        STEPS[step](world)
        if step == "close":
            closed = dialled = True
        elif step == "beat":
            closed = gone = dialled = False
        else:
            gone = gone or (step == "refused" and dialled)
            dialled = False
    changes: dict[str, Any] = {} if at == "its place" else {"listeners": ELSEWHERE}
    answer = world.register(1, incarnation=2, old_lives=True, **changes)
    free = gone or (closed and at == "its place")
    assert answer.error_code == (ErrorCode.NONE if free else DUPLICATE)


@pytest.mark.parametrize("changes", [{}, {"listeners": ELSEWHERE}, {"log_dirs": NEW_FOLDER}])
def test_while_it_sends_heartbeats_nobody_takes_its_place(changes: dict[str, Any]) -> None:
    world = World()
    world.start(1)
    for _ in range(30):
        world.now_ms += 2_000
        world.beat(1)
        answer = world.register(1, incarnation=2, old_lives=True, **changes)
        assert answer.error_code == DUPLICATE
    world.now_ms += SESSION_MS + 1
    assert world.register(1, incarnation=2, old_lives=True, **changes).error_code == 0


def test_a_broker_that_shuts_down_is_not_displaced_either() -> None:
    world = World()
    world.start(1)
    world.create("t", [1])
    world.beat(1, want_shut_down=True)
    assert world.image.brokers[1].in_controlled_shutdown
    assert world.register(1, incarnation=2, old_lives=True).error_code == DUPLICATE


def test_a_process_that_crashes_again_and_again_is_let_in_each_time() -> None:
    """Hints are capped for fencing; whoever waits for the place is the proof that it is wanted."""
    world = World()
    world.start(1)
    for number in range(2, 2 * MOST_HINTS + 2):
        close(world)
        answered(world, Answer.REFUSED)
        host = [Listener(name="PLAINTEXT", host="h", port=9000 + number)]
        answer = world.register(1, incarnation=number, old_lives=True, listeners=host)
        assert answer.error_code == 0
        world.beat(1)


def test_one_that_was_never_let_in_is_superseded_too() -> None:
    """It died while it opened its logs: fenced, and with a session."""
    world = World()
    world.register(1)
    world.beat(1, want_fence=True)
    close(world)
    answered(world, Answer.REFUSED)
    answer = world.register(1, incarnation=2, old_lives=True, listeners=ELSEWHERE)
    assert answer.error_code == 0


@pytest.mark.parametrize("at", ["its place", "elsewhere"])
def test_a_new_controller_lets_in_whom_the_old_process_cannot_stand_against(at: str) -> None:
    """A node that ran alone was killed: its controller has heard nothing of the life before."""
    world = World()
    world.start(1)
    controller = world.controller
    controller.begin_term(2, world.image, controller.log, world.now_ms)
    changes: dict[str, Any] = {} if at == "its place" else {"listeners": ELSEWHERE}
    if at == "elsewhere":
        first = world.register(1, incarnation=2, old_lives=True, **changes)
        assert first.error_code == DUPLICATE
        world.pass_time(PROBE_AFTER_MS)
        answered(world, Answer.REFUSED)
    assert world.register(1, incarnation=2, old_lives=True, **changes).error_code == 0


@pytest.fixture(params=[True, False], ids=["elr", "no elr"])
def alone(request: pytest.FixtureRequest) -> World:
    """t-0 lies on broker 1 alone, which two incarnations have led."""
    world = World()
    if not request.param:
        world.level("eligible.leader.replicas.version", 0)
    world.start(1, 2)
    world.create("t", [1])
    world.register(1, incarnation=2, unknown_tagged_fields=seen(1, 2))
    world.beat(1)
    assert world.partition("t").leader == 1
    return world


def start_again(world: World, number: int, told: dict[int, bytes] | None) -> None:
    answer = world.register(1, incarnation=number, unknown_tagged_fields=told)
    assert answer.error_code == 0
    world.beat(1)


@pytest.mark.parametrize(
    "told",
    [seen(1, 2, 3), seen(2, 3), seen(1, 3, folder=70), None],
    ids=["all", "last", "repaired", "unknown"],
)
def test_a_crash_on_the_last_incarnation_s_folders_leads_again(
    alone: World, told: dict[int, bytes] | None
) -> None:
    start_again(alone, 3, told)
    assert alone.partition("t").leader == 1


def test_a_life_of_an_earlier_version_makes_no_folder_older(alone: World) -> None:
    """The node went back to it for a while, which noted nothing, and was killed there."""
    start_again(alone, 3, None)
    start_again(alone, 4, seen(2, 4))
    assert alone.partition("t").leader == 1
    start_again(alone, 5, seen(2, 5))
    assert alone.partition("t").leader == -1
    image = alone.image
    assert from_snapshot(snapshot_records(image), image.next_offset, image.epoch).brokers == (
        image.brokers
    )


@pytest.mark.parametrize("told", [seen(1, 3), seen(3)], ids=["older", "mixed"])
@pytest.mark.parametrize("how", ["at once", "after its session"])
def test_older_folders_never_lead_what_may_be_elsewhere(
    alone: World, told: dict[int, bytes], how: str
) -> None:
    """Neither at once nor after any restart, until an operator asks for an unclean election."""
    if how == "after its session":
        alone.now_ms += 5_000
        alone.beat(2)
        alone.pass_time(5_000)
        assert alone.partition("t").leader == -1
    start_again(alone, 3, told)
    assert alone.sentences("BROKER_REGISTERED")[-1].endswith(
        "their replicas are not trusted until they have been in sync again"
    )
    for number in (4, 5):
        assert alone.partition("t").leader == -1
        start_again(alone, number, seen(3, number - 1, number))
    assert alone.partition("t").leader == -1
    assert alone.replayed() == alone.image
    elect(alone, UNCLEAN, 0)
    assert alone.partition("t").leader == 1


def test_a_clean_stop_proves_that_the_folders_are_the_newest(alone: World) -> None:
    epoch = alone.image.brokers[1].epoch
    answer = alone.register(
        1, incarnation=3, previous_broker_epoch=epoch, unknown_tagged_fields=seen(3)
    )
    assert answer.error_code == 0
    alone.beat(1)
    assert alone.partition("t").leader == 1
    assert alone.sentences("LEADER_ELECTED")[-1] == "broker 1 leads t-0 (broker 1: it is back)"


def test_a_follower_on_older_folders_leaves_every_set_and_joins_again_in_sync() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2])
    world.register(2, incarnation=2, unknown_tagged_fields=seen(2, broker_id=2))
    assert (world.partition("t").isr, world.partition("t").leader) == ((1,), 1)
    world.beat(2)
    world.beat(1, want_fence=True)
    assert world.partition("t").leader == -1


FOLDERS = [bytes([101]) * 16, bytes([170]) * 16]


def two_folders(world: World) -> None:
    """t-0 lies in the first folder of broker 1, t-1 in the second; nothing is elsewhere."""
    world.register(1, incarnation=1, log_dirs=FOLDERS, unknown_tagged_fields=seen(1))
    world.beat(1)
    world.create("t", [1], [1])
    assert assign(world, 1, dict(enumerate(FOLDERS))) == [0, 0]


def told_of(*folders: tuple[int, list[int], int]) -> dict[int, bytes]:
    """What folders tell: which one, incarnations that it has seen, epoch of the last of them."""
    return tagged(
        FolderHistory(
            folders=[
                SeenFolder(
                    directory_id=FOLDERS[index],
                    incarnation_ids=[incarnation(1, each) for each in numbers],
                    broker_epoch=epoch,
                )
                for index, numbers, epoch in folders
            ]
        )
    )


@pytest.mark.parametrize("older", [(), (0,), (1,), (0, 1)])
def test_only_what_lies_in_an_older_folder_is_set_back(older: tuple[int, ...]) -> None:
    world = World()
    two_folders(world)
    world.register(
        1,
        incarnation=2,
        log_dirs=FOLDERS,
        unknown_tagged_fields=told_of((0, [1, 2], 1), (1, [1, 2], 1)),
    )
    world.beat(1)
    told = told_of(*((index, [1, 3] if index in older else [2, 3], 1) for index in (0, 1)))
    world.register(1, incarnation=3, log_dirs=FOLDERS, unknown_tagged_fields=told)
    world.beat(1)
    leaders = [world.partition("t", index).leader for index in (0, 1)]
    assert leaders == [-1 if index in older else 1 for index in (0, 1)]


def test_a_folder_that_is_newer_than_the_metadata_is_not_older() -> None:
    """The metadata was put back from a backup: its last incarnation is one that no folder names."""
    world = World()
    two_folders(world)
    epoch = world.image.brokers[1].epoch
    for told, leader in ((epoch + 900, 1), (epoch - 1, -1)):
        world.register(
            1,
            incarnation=8,
            log_dirs=FOLDERS,
            unknown_tagged_fields=told_of((0, [7, 8], told), (1, [7, 8], told)),
        )
        world.beat(1)
        assert world.partition("t").leader == leader
        world = World()
        two_folders(world)
