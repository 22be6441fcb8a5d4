"""R16: replicas are moved by the files of Kafka's tool, on four real nodes."""

from __future__ import annotations

import json
from functools import partial

import pytest

from anabranch.client import reassignments
from anabranch.client.connection import ConnectionLost


@pytest.fixture
def anabranch(cluster_verb):
    return cluster_verb


@pytest.fixture
def verb(anabranch):
    return partial(anabranch, "partitions", "reassign")


@pytest.fixture
def create(anabranch):
    """Make a topic with these replica lists."""

    def run(name: str, assignment: str) -> None:
        result = anabranch("topics", "create", "--topic", name, "--replica-assignment", assignment)
        assert result.exit_code == 0, result.output

    return run


@pytest.fixture
def moves(tmp_path):
    """Write a file of moves; returns its path."""

    def write(*partitions: tuple[str, int, list[int]]) -> str:
        path = tmp_path / "moves.json"
        entries = [
            {"topic": topic, "partition": index, "replicas": replicas}
            for topic, index, replicas in partitions
        ]
        path.write_text(json.dumps({"version": 1, "partitions": entries}))
        return str(path)

    return write


def verified(verb, path):
    """Wait for the moves; what --verify says at last."""
    for _ in range(200):
        result = verb("--verify", "--file", path, "--json")
        if "moving" not in result.stdout:
            break
    return result


def test_proposed_executed_verified(cluster, verb, create, tmp_path):
    create("walk", "1:2,2:1,1:2")
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "walk"}]}')
    proposal = verb("--generate", "--topics-file", str(topics), "--brokers", "3,4,1")
    assert proposal.exit_code == 0, proposal.output
    now, proposed = proposal.stdout.split("Proposed:\n")
    assert '"replicas": [1, 2]' in now
    assert verb("--generate", "--topics-file", str(topics), "--brokers", "3,4,1").stdout == (
        proposal.stdout
    )
    words = ("--topics-file", str(topics), "--brokers", "3,4,1", "--json")
    told = json.loads(verb("--generate", *words).stdout)
    assert told["before"][0] == {"topic": "walk", "partition": 0, "replicas": [1, 2]}
    wanted = json.loads(proposed)["partitions"]
    assert [each["replicas"] for each in told["proposed"]] == [each["replicas"] for each in wanted]
    path = tmp_path / "proposed.json"
    path.write_text(proposed)
    begun = verb("--execute", "--file", str(path), "--throttle", "100000000")
    assert begun.exit_code == 0, begun.output
    assert "3 moves started" in begun.stdout
    done = verified(verb, str(path))
    assert done.exit_code == 0, done.output
    assert {each["progress"] for each in json.loads(done.stdout)} == {"done"}
    cluster.wait_in_sync("walk")
    assert verb("--list").stdout == "No replica is moving.\n"


def test_what_a_move_copies_is_said_before_it_is_waited_for(anabranch, verb, create, moves):
    create("heavy", "1:2,2:1")
    anabranch("produce", "--topic", "heavy", input="x" * 5000 + "\n")
    path = moves(("heavy", 0, [1, 3]), ("heavy", 1, [2, 3]))
    told = json.loads(verb("--execute", "--file", path, "--throttle", "1000", "--json").stdout)
    assert 5000 < told["bytes"] < 5200
    assert told["least_seconds"] == told["bytes"] / 1000
    assert told["unknown_sizes"] == 0
    verb("--cancel", "--file", path)
    said = verb("--execute", "--file", path, "--throttle", "1000000").stdout
    assert "bytes are copied, in 0 s or more at 1,000,000 bytes/s a broker." in said
    assert verified(verb, path).exit_code == 0


def test_a_move_that_cannot_end_is_listed_and_taken_back(cluster, anabranch, verb, create, moves):
    create("stuck", "1:2")
    cluster.stop_broker(4)
    try:
        path = moves(("stuck", 0, [1, 4]))
        assert verb("--execute", "--file", path).exit_code == 0
        (moving,) = json.loads(verb("--list", "--json").stdout)
        assert (moving["replicas"], moving["adding"]) == ([1, 4, 2], [4])
        assert "stuck-0    1,4,2     4       2" in verb("--list").stdout
        described = anabranch("topics", "describe", "--topic", "stuck").stdout.splitlines()
        assert described[1].split()[-2:] == ["adding", "removing"]
        assert described[2].split()[-2:] == ["4", "2"]
        (partition,) = json.loads(
            anabranch("topics", "describe", "--topic", "stuck", "--json").stdout
        )[0]["partitions"]
        assert (partition["adding"], partition["removing"]) == ([4], [2])
        assert (
            "down, and waited for: broker 4; start what is down, or cancel the move with "
            "`anabranch partitions reassign --cancel --file FILE`"
        ) in anabranch("explain", "stuck-0").stdout
        again = verb("--execute", "--file", path, "--json")
        assert json.loads(again.stdout)["before"] == [
            {"topic": "stuck", "partition": 0, "replicas": [1, 2]}
        ], "what was there before all moves"
        assert "stuck-0    1,4,2     4       2" in verb("--list").stdout
        assert json.loads(verb("--verify", "--file", path, "--json").stdout) == [
            {"partition": "stuck-0", "progress": "moving"}
        ]
        assert verb("--cancel", "--file", path).stdout == ("1 move cancelled, 0 not under way.\n")
        assert verb("--list").stdout == "No replica is moving.\n"
        lost = verb("--verify", "--file", path)
        assert lost.exit_code == 1
        assert (
            "Neither with these replicas nor on the way to them: 1 partition, stuck-0."
            in lost.output
        )
    finally:
        cluster.start_broker(4)


def test_a_proposal_keeps_the_factor_of_what_moves(cluster, verb, create, moves, tmp_path):
    create("on-its-way", "1:2")
    topics = tmp_path / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "on-its-way"}]}')
    cluster.stop_broker(4)
    try:
        path = moves(("on-its-way", 0, [3, 4]))
        assert verb("--execute", "--file", path).exit_code == 0
        told = verb("--generate", "--topics-file", str(topics), "--brokers", "1,2,3").stdout
        verb("--cancel", "--file", path)
    finally:
        cluster.start_broker(4)
    now, proposed = told.split("Proposed:\n")
    assert '"replicas": [1, 2]}' in now
    assert len(json.loads(proposed)["partitions"][0]["replicas"]) == 2


def test_a_throttled_move_off_a_broker_that_is_down(cluster, anabranch, verb, create, moves):
    create("left", "1:4")
    cluster.stop_broker(4)
    try:
        path = moves(("left", 0, [1, 3]))
        begun = verb("--execute", "--file", path, "--throttle", "100000000")
        assert begun.exit_code == 0, begun.output
        assert verified(verb, path).exit_code == 0
    finally:
        cluster.start_broker(4)
    told = anabranch("configs", "describe", "--entity-type", "brokers", "--entity-name", "4")
    assert told.exit_code == 0, told.output
    assert "throttled" not in told.stdout


def rates_of(anabranch):
    words = ("configs", "describe", "--entity-type", "brokers", "--entity-name", "1", "--json")
    return [each["value"] for each in json.loads(anabranch(*words).stdout)
            if each["name"].endswith("replication.throttled.rate")]  # fmt: skip


@pytest.mark.slow
def test_moves_beside_one_of_an_unknown_partition_are_throttled(anabranch, verb, create, moves):
    create("mixed", "1:2")
    path = moves(("mixed", 0, [1, 3]), ("no-such", 0, [1]))
    begun = verb("--execute", "--file", path, "--throttle", "1234567")
    assert begun.exit_code == 1, begun.output
    assert rates_of(anabranch) == ["1234567", "1234567"]
    assert verified(verb, path).exit_code == 1
    assert rates_of(anabranch) == []


def test_the_throttle_stays_while_other_replicas_move(cluster, anabranch, verb, create, moves):
    create("long", "1:2")
    create("short", "1:2")
    cluster.stop_broker(4)
    try:
        path = moves(("long", 0, [1, 4]))
        assert verb("--execute", "--file", path, "--throttle", "1000000").exit_code == 0
        other = moves(("short", 0, [1, 2]))
        assert verb("--verify", "--file", other).exit_code == 0
        assert rates_of(anabranch) == ["1000000", "1000000"]
        path = moves(("long", 0, [1, 4]))
        assert verb("--cancel", "--file", path).exit_code == 0
        assert rates_of(anabranch) == []
    finally:
        cluster.start_broker(4)


def test_the_throttle_stays_where_that_is_asked_for(cluster, anabranch, verb, create, moves):
    create("keep", "1:2")
    cluster.stop_broker(4)
    try:
        path = moves(("keep", 0, [1, 4]))
        assert verb("--execute", "--file", path, "--throttle", "1000000").exit_code == 0
        assert verb("--cancel", "--file", path, "--preserve-throttles").exit_code == 0
        assert rates_of(anabranch) == ["1000000", "1000000"]
        assert verb("--cancel", "--file", path).exit_code == 0
    finally:
        cluster.start_broker(4)


def listed_of(anabranch, topic):
    words = ("configs", "describe", "--entity-type", "topics", "--entity-name", topic, "--json")
    return [set(each["value"].split(",")) for each in json.loads(anabranch(*words).stdout)
            if each["name"].endswith("replication.throttled.replicas")]  # fmt: skip


def test_later_moves_of_a_topic_leave_its_earlier_ones_throttled(
    cluster, anabranch, verb, create, moves
):
    create("twice", "1:2,2:1")
    cluster.stop_broker(4)
    try:
        for index, row in enumerate(([1, 4], [2, 4])):
            path = moves(("twice", index, row))
            assert verb("--execute", "--file", path, "--throttle", "1000000").exit_code == 0
        followers, leaders = listed_of(anabranch, "twice")
        assert followers == {"0:4", "1:4"}
        assert leaders == {"0:1", "0:2", "1:1", "1:2"}
        words = ("configs", "alter", "--entity-type", "topics", "--entity-name", "twice")
        every = "follower.replication.throttled.replicas=*"
        assert anabranch(*words, "--add-config", every).exit_code == 0
        assert verb("--execute", "--file", path, "--throttle", "1000000").exit_code == 0
        assert listed_of(anabranch, "twice")[0] == {"*"}
        path = moves(("twice", 0, [1, 4]), ("twice", 1, [2, 4]))
        assert verb("--cancel", "--file", path).exit_code == 0
        assert listed_of(anabranch, "twice") == []
    finally:
        cluster.start_broker(4)


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_the_way_back_is_told_before_anything_moves(
    anabranch, verb, create, moves, monkeypatch, words
):
    async def lost(*_args, **_kwargs):
        raise ConnectionLost("the connection ended")

    name = f"back{len(words)}"
    create(name, "1:2")
    monkeypatch.setattr(reassignments, "reassign", lost)
    begun = verb("--execute", "--file", moves((name, 0, [1, 3])), *words)
    assert begun.exit_code == 1
    told = begun.stderr if words else begun.stdout
    assert f'{{"topic": "{name}", "partition": 0, "replicas": [1, 2]' in told


WRONG = [
    ((), "Say one of --generate, --execute"),
    (("--list", "--execute"), "Say one of"),
    (("--execute",), "--execute needs --file FILE."),
    (("--generate",), "--generate needs --topics-file FILE and --brokers IDS."),
    (
        ("--generate", "--topics-file", __file__, "--brokers", "1,²"),
        "--brokers: expected different ids separated by commas, not 1,².",
    ),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_unclear_words_are_refused(verb, words, said):
    result = verb(*words)
    assert result.exit_code == 2
    assert said in result.output


def test_each_refusal_is_one_sentence_and_moves_nothing(verb, create, moves, tmp_path):
    create("held", "1:2")
    for partitions, said in (
        ((("held", 7, [1]),), "held-7 was refused: Unable to find partition held:7"),
        ((("no", 0, [1]),), "no-0 was refused: Unable to find a topic named no"),
        ((("held", 0, [1, 9]),), "includes broker 9, but no such broker is registered"),
    ):
        result = verb("--execute", "--file", moves(*partitions))
        assert result.exit_code == 1
        assert said in result.output
        assert "Traceback" not in result.output
    path = moves(("held", 0, [1, 2, 3]))
    result = verb("--execute", "--file", path, "--disallow-replication-factor-change")
    assert "The replication factor is changed from 2 to 3" in result.output
    broken = tmp_path / "broken.json"
    broken.write_text('{"partitions": [\n{"topic": "held"}]}')
    result = verb("--execute", "--file", str(broken))
    assert result.exit_code == 1
    assert f"{broken}: line 2, partition: it is missing" in result.output
    assert verb("--list").stdout == "No replica is moving.\n"


def test_a_topic_is_made_of_a_file_after_it_was_checked(cluster, anabranch, tmp_path):
    """F6, F7: the file that Fluvio's users know; validate-only says what would be."""
    path = tmp_path / "map.json"
    path.write_text('[\n{"id": 0, "replicas": [3, 1]},\n{"id": 1, "replicas": [1, 2]}\n]')
    words = ["topics", "create", "--topic", "mapped", "--replica-assignment", str(path)]
    checked = anabranch(*words, "--validate-only")
    assert checked.output.splitlines() == [
        "Topic mapped would be created: 2 partitions, replication factor 2.",
        "  partition 0: brokers 3, 1 (racks c, a)",
        "  partition 1: brokers 1, 2 (racks a, b)",
    ]
    assert "mapped" not in cluster.topics()
    assert anabranch(*words).exit_code == 0
    assert cluster.leader("mapped", 0) == 3
    path.write_text('[\n{"id": 0, "replicas": [3, 1]},\n{"id": 1, "replicas": [1, 1]}\n]')
    wrong = anabranch(*words)
    assert wrong.exit_code == 1
    assert f"{path}: line 3, replicas[1]: broker 1 is named twice in partition 1" in wrong.output
    path.write_text('[{"id": 0, "replicas": [3, 77]}]')
    unknown = anabranch(*words, "--topic", "new")
    assert "includes broker 77, but no such broker is registered" in unknown.output


def test_what_shares_a_rack_is_said_when_a_topic_is_made(anabranch):
    shared = ("topics", "create", "--topic", "both", "--replica-assignment", "1:2,3:4")
    for said in (anabranch(*shared, "--validate-only"), anabranch(*shared)):
        assert said.output.splitlines()[-1] == "Replicas share a rack in 1 partition: 1."
    told = json.loads(anabranch(*shared, "--json", "--topic", "again").stdout)
    assert (told["replica_map"], told["sharing_racks"]) == ([[1, 2], [3, 4]], [1])


def test_more_partitions_than_one_request_may_name(verb, create, moves):
    create("begins-first", "1")
    unknown = [("not-there", index, [1, 2, 3]) for index in range(40_000)]
    result = verb("--execute", "--file", moves(("begins-first", 0, [2]), *unknown), "--json")
    assert result.exit_code == 1
    outcomes = json.loads(result.stdout.splitlines()[0])["outcomes"]
    assert [each["partition"] for each in outcomes if not each["error"]] == ["begins-first-0"]
    assert len(outcomes) == 1 + len(unknown)
    assert {each["error"] for each in outcomes[1:]} == {"UNKNOWN_TOPIC_OR_PARTITION"}
