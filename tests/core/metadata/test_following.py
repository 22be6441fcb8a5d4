"""Following the metadata log: each state's answers, and what stops a node."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.core.metadata.served import (
    BETWEEN,
    INTERVAL,
    NODE,
    Node,
    Served,
    changed_topics,
    registration,
    removal,
    topic,
    topic_id,
)

from anabranch.core.errors import Bug, ErrorCode
from anabranch.core.log.files import DiskFull
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.following.effects import (
    Act,
    Begin,
    ControllerMet,
    Fetch,
    Fetched,
    FetchSnapshot,
    Leave,
    PieceFetched,
    Registered,
    RoomMade,
    SnapshotFailed,
    SnapshotWritten,
    Stop,
    Unanswered,
)
from anabranch.core.metadata.following.following import RETRY_MS, TABLE, State
from anabranch.core.metadata.following.requests import LOG_BYTES, PIECE_BYTES
from anabranch.core.wire.messages.fetch import FetchResponse
from anabranch.core.wire.messages.fetch_snapshot import FetchSnapshotResponse
from anabranch.core.wire.metadata_records import FeatureLevelRecord, TopicRecord

EVENTS: dict[type, Any] = {
    Begin: Begin(),
    Fetched: Fetched(FetchResponse(), 1),
    PieceFetched: PieceFetched(FetchSnapshotResponse(), 1),
    Unanswered: Unanswered("nobody answered"),
    RoomMade: RoomMade(is_made=True),
    SnapshotWritten: SnapshotWritten(),
    SnapshotFailed: SnapshotFailed("no"),
    Registered: Registered(5),
}


@pytest.fixture
def served() -> Served:
    return Served()


@pytest.fixture
def node() -> Node:
    return Node(MemoryFiles())


def test_an_unknown_pair_of_state_and_event_raises() -> None:
    for state in State:
        for kind, event in EVENTS.items():
            if (state, kind) not in TABLE:
                node = Node(MemoryFiles())
                node.following.state = state
                with pytest.raises(Bug, match=f"that is {state.value} got {kind.__name__}"):
                    node.step(event)


def test_the_table_knows_one_answer_to_each_question() -> None:
    """An answer belongs to the state that asked for it, and to no other."""
    answers = {Fetched: {State.COMPARING, State.FETCHING}, PieceFetched: {State.LOADING}}
    for kind, states in answers.items():
        assert {state for state, event in TABLE if event is kind} == states
    asking = set.union(*answers.values())
    assert {state for state, event in TABLE if event is Unanswered} == asking
    assert {state for state, event in TABLE if event is RoomMade} == {State.FULL}
    assert {state for state, event in TABLE if event is Begin} == {State.NEW}


# What comes next.


def test_every_commit_arrives_as_image_and_delta(served: Served, node: Node) -> None:
    served.commit(topic(1))
    node.catch_up(served)
    served.commit(removal(1), topic(2))
    node.catch_up(served)
    last = node.published[-1]
    assert last.image is node.copy.image and last.image == served.image
    assert [each.name for each in last.delta.deleted_topics] == ["t1"]
    assert last.delta.created_topics == (topic_id(2),)


def test_who_is_far_behind_applies_the_log_in_pieces(served: Served) -> None:
    """Clients are served between two of them."""
    node = Node(MemoryFiles(), piece_bytes=PIECE_BYTES)
    node.catch_up(served)
    sizes = {}
    for first in range(0, 5_000, 100):
        before = served.log.end_offset
        batch = served.commit(*map(topic, range(first, first + 100)))
        sizes[before] = len(batch)
    node.catch_up(served)
    ends = [each.image.next_offset for each in node.published]
    assert ends[-1] == served.log.end_offset and node.copy.image == served.image
    for start, end in pairwise(ends):
        assert sum(size for at, size in sizes.items() if start <= at < end) <= LOG_BYTES
    assert len(ends) < len(sizes), "but not each batch by itself"


def test_what_came_twice_counts_once(served: Served, node: Node) -> None:
    served.commit(topic(1))
    question = node.question
    assert isinstance(question, Fetch)
    node.catch_up(served)
    count = len(node.published)
    node.answered(served.fetched(question))
    assert len(node.published) == count and node.copy.image == served.image


def test_an_answer_that_leaves_a_gap_is_refused(served: Served, node: Node) -> None:
    node.catch_up(served)
    question = node.question
    served.commit(topic(1))
    before = node.copy.image
    last = served.commit(topic(2))
    assert isinstance(question, Fetch)
    answer = served.fetched(question)
    answer.response.responses[0].partitions[0].records = last
    node.answered(answer)
    assert node.copy.image is before and node.following.state is State.WAITING
    assert "begin at 2" in node.complaints[-1]
    node.catch_up(served)
    assert node.copy.image == served.image


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH,
             ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE],
)  # fmt: skip
def test_a_controller_of_no_use_is_left(served: Served, node: Node, code: ErrorCode) -> None:
    node.catch_up(served)
    served.commit(topic(1))
    assert isinstance(node.question, Fetch)
    answer = served.fetched(node.question)
    answer.response.responses[0].partitions[0].error_code = code
    node.done.clear()
    node.answered(answer)
    assert node.done == [Leave()] and node.question is None
    assert node.following.next_tick_ms == node.now_ms + RETRY_MS
    node.tick()
    assert node.following.state is State.COMPARING
    node.catch_up(served)
    assert node.copy.image == served.image


def test_an_operator_hears_of_an_obstacle_once(served: Served, node: Node) -> None:
    for _ in range(3):
        node.answered(Unanswered("no active controller"))
        node.tick()
    assert node.complaints == ["no active controller"]
    node.catch_up(served)
    node.answered(Unanswered("no active controller"))
    assert len(node.complaints) == 2, "it is another outage"


def test_the_last_batch_is_compared_on_each_new_connection(served: Served, node: Node) -> None:
    served.commit(topic(1))
    node.catch_up(served, 1)
    assert sum(isinstance(each, ControllerMet) for each in node.done) == 1
    served.commit(topic(2))
    node.ask(served, 2)
    assert node.copy.end_offset < served.log.end_offset, "nothing is taken before the comparison"
    assert node.following.state is State.COMPARING
    assert isinstance(node.question, Fetch)
    asked = node.question.request.topics[0].partitions[0]
    assert asked.fetch_offset == node.copy.end.last_base_offset
    node.catch_up(served, 2)
    assert node.copy.image == served.image
    assert sum(isinstance(each, ControllerMet) for each in node.done) == 2


# A store that is not the one of before.


def lost(served: Served, node: Node, epoch: int) -> Served:
    """The store forgets the last two batches of the copy, under a controller of another epoch."""
    for number in range(1, 4):
        served.commit(topic(number))
    node.catch_up(served)
    served.go_back(served.log.end_offset - 2, epoch)
    return served


def test_a_store_that_went_back_stops_the_node(served: Served, node: Node) -> None:
    lost(served, node, 2)
    before = node.copy.image
    node.ask(served, 2)
    node.ask(served, 2)
    assert "went back to offset" in node.stopped
    assert "anabranch metadata restore" in node.stopped
    assert node.copy.image is before and "t3" in before.topic_ids_by_name


def test_a_store_that_went_back_and_on_stops_the_node(served: Served, node: Node) -> None:
    lost(served, node, 2)
    for number in range(5, 9):
        served.commit(topic(number))
    before = node.copy.image
    node.ask(served, 2)
    node.ask(served, 2)
    assert "has other records at offset" in node.stopped and node.copy.image is before


def test_a_diverging_epoch_stops_the_node(served: Served, node: Node) -> None:
    """Over the very connection, so that nothing is compared."""
    lost(served, node, 2)
    before = node.copy.image
    node.ask(served, 1)
    assert "went back to offset" in node.stopped and node.copy.image is before


@pytest.mark.parametrize("epoch", [1, 2], ids=["behind the copy", "beyond the copy"])
def test_an_older_snapshot_stops_the_node(served: Served, epoch: int) -> None:
    served.begin(2, served.log)
    for number in range(3 * epoch):
        served.commit(topic(number))
    node = Node(MemoryFiles())
    node.catch_up(served)
    other = Served()
    other.trimmed(20)
    for number in range(30, 40) if epoch == 2 else ():
        other.commit(topic(number))
        other.snapshot()
    before = node.copy.image
    node.answered(Unanswered("gone"))
    node.tick()
    node.ask(other, 2)
    assert "went back" in node.stopped and node.copy.image is before


@pytest.mark.parametrize("is_new", [False, True], ids=["live connection", "new connection"])
@pytest.mark.parametrize("since", [0, 3])
def test_a_controller_that_lost_its_lease_stops_no_node(
    served: Served, node: Node, since: int, is_new: bool
) -> None:
    """It does not know yet; another has the lease, and the node has followed that one since."""
    old = Served()
    for each in (served, old):
        each.commit(topic(1))
    served.begin(2, served.log)
    for number in range(since):
        served.commit(topic(10 + number))
    node.catch_up(served, 1)
    old.holds_lease = False
    if is_new:
        node.answered(Unanswered("gone"))
        node.tick()
    for _ in range(3):
        node.ask(old, 2)
        assert not node.stopped
        node.tick()
    assert node.complaints == (["gone"] if is_new else [])
    served.commit(topic(2))
    node.catch_up(served, 4)
    assert node.copy.image == served.image


def test_another_cluster_stops_the_node(served: Served, node: Node) -> None:
    node.answered(Fetched(FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID), 1))
    assert "belongs to another cluster than test-cluster" in node.stopped
    assert node.following.state is State.STOPPED and node.question is None


def test_what_this_version_does_not_know_stops_the_node(served: Served, node: Node) -> None:
    served.commit(FeatureLevelRecord(name="metadata.version", feature_level=900))
    node.catch_up(served)
    assert "is too old for the cluster" in node.stopped


# Snapshots of the controller.


def far_behind(served: Served, node: Node) -> None:
    """The controller has only a snapshot of what the node lacks."""
    served.commit(topic(1), topic(2))
    node.catch_up(served)
    served.commit(removal(1))
    served.trimmed(10)
    node.ask(served)
    assert isinstance(node.question, FetchSnapshot)


def test_who_is_far_behind_loads_a_snapshot_in_pieces(served: Served, node: Node) -> None:
    far_behind(served, node)
    served.commit(topic(3))
    node.catch_up(served)
    pieces = [each for each in node.done if isinstance(each, FetchSnapshot)]
    assert len(pieces) > 2
    assert node.copy.image == served.image
    asked = pieces[0].request.topics[0].partitions[0].snapshot_id
    assert node.copy.log.start_offset == asked.end_offset
    node.restart()
    assert node.copy.image == served.image


def test_a_loaded_snapshot_tells_of_what_was_deleted(served: Served, node: Node) -> None:
    """Else a broker would keep, and serve, a topic that is gone."""
    far_behind(served, node)
    while isinstance(node.question, FetchSnapshot):
        node.ask(served)
    delta = node.published[-1].delta
    assert [each.name for each in delta.deleted_topics] == ["t1"]
    assert topic_id(2) not in changed_topics(delta), "it is as it was"
    assert topic_id(10) in delta.created_topics


def test_a_newer_snapshot_is_fetched_anew(served: Served, node: Node) -> None:
    far_behind(served, node)
    node.ask(served)
    served.trimmed(20)
    node.catch_up(served)
    assert node.copy.image == served.image and not node.complaints


def test_pieces_of_two_controllers_do_not_mix(served: Served, node: Node) -> None:
    far_behind(served, node)
    node.ask(served, 1)
    node.ask(served, 2)
    assert node.following.state is State.COMPARING
    node.catch_up(served, 2)
    assert node.copy.image == served.image


@pytest.mark.parametrize("wrong", ["position", "size", "nothing", "too much"])
def test_a_piece_that_does_not_fit_is_refused(served: Served, node: Node, wrong: str) -> None:
    far_behind(served, node)
    node.ask(served)
    before = node.copy.image
    assert isinstance(node.question, FetchSnapshot)
    event = served.piece(node.question)
    answer = event.response.topics[0].partitions[0]
    if wrong == "position":
        answer.position += 1
    elif wrong == "size":
        answer.size += 1
    else:
        answer.unaligned_records = b"" if wrong == "nothing" else bytes(answer.size)
    node.answered(event)
    assert node.following.state is State.WAITING and node.copy.image is before
    node.catch_up(served)
    assert node.copy.image == served.image


def test_a_snapshot_that_is_not_whole_changes_nothing(served: Served, node: Node) -> None:
    far_behind(served, node)
    before, end = node.copy.image, node.copy.log.end_offset
    assert served.log.snapshot is not None
    whole = served.log.snapshot
    served.log.snapshot = whole._replace(payload=whole.payload[:-10])
    while isinstance(node.question, FetchSnapshot):
        node.ask(served)
    assert "does not end with its footer" in node.complaints[-1]
    assert node.copy.image is before and node.copy.log.end_offset == end
    node.restart()
    assert node.copy.image == before


# The own registration.


def test_a_broker_acts_from_its_own_registration_on(served: Served, node: Node) -> None:
    served.commit(registration(3))  # of an earlier life
    served.commit(topic(1))
    node.catch_up(served)
    assert node.published and not node.acted
    node.step(Registered(5))
    assert not node.acted, "the metadata does not show it yet"
    served.commit(topic(2))
    node.catch_up(served)
    assert not node.acted
    served.commit(registration(5))
    node.catch_up(served)
    (first,) = node.acted
    assert first.published is None and first.image == served.image
    assert first.delta.created_topics == (topic_id(1), topic_id(2)), "all of it"
    served.commit(topic(3))
    node.catch_up(served)
    newest = node.acted[-1]
    assert newest.published is newest.delta and newest.delta.created_topics == (topic_id(3),)


@pytest.mark.parametrize("by_snapshot", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_broker_hears_which_topics_went_before_it_acts(
    served: Served, node: Node, is_known: bool, by_snapshot: bool
) -> None:
    """What its earlier life left under such a name may be of another topic than has it now. Its
    copy may have lost that the older one was made; a snapshot then tells nothing of it."""
    made, gone = (topic(1), topic(2)), (removal(1), removal(2))
    served.commit(topic(3))
    if is_known:
        served.commit(*made)
    node.catch_up(served)
    node.restart()
    again = TopicRecord(name="t1", topic_id=topic_id(9))
    served.commit(*(gone if is_known else made + gone), again)
    if by_snapshot:
        served.snapshot()
        served.trimmed(20)
    node.catch_up(served)
    node.step(Registered(5))
    served.commit(registration(5))
    node.catch_up(served)
    seen = set() if by_snapshot and not is_known else {"t1", "t2"}
    assert [each.deleted_before for each in node.acted] == [seen]
    ids = {topic_id(1), topic_id(2)} if seen else set()
    assert [each.deleted_ids for each in node.acted] == [ids]
    served.commit(removal(3))
    node.catch_up(served)
    assert not node.acted[-1].deleted_before, "the delta tells"


@pytest.mark.parametrize("lives", [1, 2])
def test_a_broker_that_stopped_before_it_acted_hears_again_what_went(
    served: Served, node: Node, lives: int
) -> None:
    """Its copy has the removal already; what lies in its folders was not removed yet. Only ids are
    told of what the copy had: a name may have been given again long ago."""
    served.commit(topic(1), topic(3))
    node.catch_up(served)
    for _ in range(lives):
        node.restart()
        if served.image.topic("t1"):
            served.commit(removal(1), topic(2), removal(2))
        node.catch_up(served)
        assert not node.acted
    node.restart()
    node.step(Registered(9))
    served.commit(registration(9))
    node.catch_up(served)
    assert [each.deleted_ids for each in node.acted] == [{topic_id(1), topic_id(2)}]
    assert [each.deleted_before for each in node.acted] == [set()]


def test_the_registration_may_be_told_after_the_metadata(served: Served, node: Node) -> None:
    served.commit(registration(5))
    node.catch_up(served)
    assert not node.acted
    node.step(Registered(5))
    assert [each.published for each in node.acted] == [None]


def test_a_later_registration_of_another_process_is_not_this_one(
    served: Served, node: Node
) -> None:
    node.step(Registered(5))
    served.commit(registration(5), registration(9))
    node.catch_up(served)
    assert not node.acted and not node.following.acts


def test_a_controller_alone_never_acts(served: Served) -> None:
    node = Node(MemoryFiles())
    node.following._is_broker = False
    node.step(Registered(5))
    served.commit(registration(5))
    node.catch_up(served)
    assert node.published and not node.acted


def test_a_restart_publishes_what_the_copy_holds(served: Served, node: Node) -> None:
    served.commit(topic(1))
    node.catch_up(served)
    node.published.clear()
    node.restart()
    (first,) = node.published
    assert first.image == served.image and first.delta.created_topics == (topic_id(1),)


# Snapshots of the copy.


def test_a_copy_gets_snapshots_of_its_own_and_lets_go_of_its_log(served: Served) -> None:
    node = Node(MemoryFiles(), **{BETWEEN: "500"})
    starts = []
    for number in range(40):
        served.commit(topic(number))
        node.catch_up(served)
        if node.writing:
            node.write()
            starts.append(node.copy.log.start_offset)
    assert len(starts) > 3 and starts == sorted(starts) and starts[-1] > starts[0]
    names = [name for name in node.files.list(node.copy.folder) if name.endswith(".checkpoint")]
    assert len(names) == 2
    node.restart()
    assert node.copy.image == served.image


def test_one_snapshot_is_written_at_a_time(served: Served) -> None:
    node = Node(MemoryFiles(), **{BETWEEN: "200"})
    for number in range(20):
        served.commit(topic(number))
        node.catch_up(served)
    assert len(node.writing) == 1


@pytest.mark.parametrize("fault", ["", "the disk refuses"])
def test_a_snapshot_that_became_due_meanwhile_is_written_when_the_other_ends(
    served: Served, fault: str
) -> None:
    """In a cluster that rests nothing else would ever have it written."""
    node = Node(MemoryFiles(), **{BETWEEN: "200"})
    for number in range(20):
        served.commit(topic(number))
        node.catch_up(served)
    (first,) = node.writing
    if fault:
        node.writing.clear()
        node.step(SnapshotFailed(fault))
    else:
        node.write()
    assert len(node.writing) == 1
    second = node.writing[0]
    assert second.image.offset == node.copy.image.offset > first.image.offset
    node.write()
    assert not node.writing, "nothing came since"


def test_a_snapshot_is_due_by_time_when_there_is_something_new(served: Served) -> None:
    node = Node(MemoryFiles(), **{INTERVAL: "60000"})
    node.catch_up(served)
    node.now_ms += 60_000
    assert not node.writing
    served.commit(topic(1))
    node.catch_up(served)
    assert len(node.writing) == 1


def test_a_snapshot_that_is_due_by_time_waits_for_no_commit(served: Served) -> None:
    node = Node(MemoryFiles(), **{INTERVAL: "60000"})
    served.commit(topic(1))
    node.catch_up(served)
    node.now_ms += 59_999
    node.ask(served)
    assert not node.writing
    node.now_ms += 1
    node.ask(served)
    node.ask(served)
    assert len(node.writing) == 1, "one is under way"
    node.write()
    node.now_ms += 60_000
    node.ask(served)
    assert not node.writing, "nothing came since"


def test_a_snapshot_that_failed_is_told_and_tried_later(served: Served) -> None:
    node = Node(MemoryFiles(), **{BETWEEN: "200"})
    for number in range(9):
        served.commit(topic(number))
        node.catch_up(served)
    node.writing.clear()
    node.step(SnapshotFailed("the disk refuses"))
    assert node.complaints == ["the disk refuses"] and not node.stopped
    for number in range(10, 19):
        served.commit(topic(number))
        node.catch_up(served)
    assert node.writing


# Disks.


class Full(MemoryFiles):
    """A disk that has no room once for one kind of write."""

    refuses = ""

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        if self.refuses == "snapshot" and path.endswith(".checkpoint"):
            self.refuses = ""
            raise DiskFull(f"{path}: no space left")
        super().write_atomic(path, data, sync=sync)


def full(node: Node, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next appends to the log find no room."""
    left = [times]
    append = node.copy.append

    def refuse(records: Any, now_ms: int) -> Any:
        if left[0]:
            left[0] -= 1
            raise DiskFull("data: no space left")
        return append(records, now_ms)

    monkeypatch.setattr(node.copy, "append", refuse)


def test_what_does_not_fit_is_written_into_what_is_given_back(
    served: Served, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.has_reserve = True
    served.commit(topic(1))
    full(node, monkeypatch, 1)
    node.catch_up(served)
    assert not node.stopped and node.copy.image == served.image
    assert sum(bool(each.delta.created_topics) for each in node.published) == 1


@pytest.mark.parametrize("has_reserve", [False, True])
def test_a_disk_without_room_stops_the_node(
    served: Served, node: Node, monkeypatch: pytest.MonkeyPatch, has_reserve: bool
) -> None:
    node.has_reserve = has_reserve
    full(node, monkeypatch, 2)
    node.catch_up(served)
    assert "cannot be written: data: no space left" in node.stopped
    assert node.done[-1] == Stop(node.stopped) and not node.published


def test_a_snapshot_that_does_not_fit_is_written_into_what_is_given_back(served: Served) -> None:
    files = Full()
    node = Node(files)
    node.has_reserve = True
    far_behind(served, node)
    files.refuses = "snapshot"
    node.catch_up(served)
    assert not files.refuses and not node.stopped and node.copy.image == served.image


def test_effects_are_frozen(served: Served, node: Node) -> None:
    served.commit(registration(5))
    node.step(Registered(5))
    node.catch_up(served)
    act = next(each for each in node.done if isinstance(each, Act))
    with pytest.raises(AttributeError):
        act.published = None  # type: ignore[misc]
    assert served.image.brokers[NODE].epoch == 5


def test_an_empty_store_under_a_copy_stops_the_node(served: Served, node: Node) -> None:
    served.commit(topic(1))
    node.catch_up(served)
    other = Served()
    other.controller.log = CommittedLog()
    node.answered(Unanswered("gone"))
    node.tick()
    node.ask(other, 2)
    assert "is empty, so it was lost" in node.stopped


def test_what_came_while_a_snapshot_was_written_stays(served: Served) -> None:
    node = Node(MemoryFiles(), **{BETWEEN: "200"})
    for number in range(20):
        served.commit(topic(number))
        node.catch_up(served)
        if len(node.writing) and number % 3 == 0:
            node.write()
            node.restart()
            assert node.copy.image == served.image
