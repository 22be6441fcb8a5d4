"""B2, R16: plans are made, reviewed and carried out on four real nodes in three racks."""

from __future__ import annotations

import json
import re
import time

import pytest


@pytest.fixture
def verb(cluster_verb):
    return cluster_verb


@pytest.fixture
def topic(cluster, verb):
    """Make a topic with these replica lists; it is gone afterwards."""
    made = []

    def create(name: str, assignment: str) -> None:
        made.append(name)
        result = verb("topics", "create", "--topic", name, "--replica-assignment", assignment)
        assert result.exit_code == 0, result.output

    yield create
    for name in made:
        cluster.delete_topic(name)
    verb("cluster", "uncordon", "--broker", "3")  # which plans that drain it have cordoned


def test_a_plan_is_printed_with_reasons_and_moves_nothing(cluster, verb, topic, tmp_path):
    topic("walk", "1:2:3,2:3:1")
    path = tmp_path / "plan.json"
    result = verb("plan", "drain", "--broker", "3", "--out", str(path))
    assert result.exit_code == 0, result.output
    assert "drain broker 3: 2 partitions to move, 2 replicas to copy." in result.output
    assert "Applied, it cordons broker 3 first: no new replicas go there." in result.output
    assert (
        "walk-0: 1, 2, 3 -> 1, 2, 4  (broker 3 is drained; broker 4 gets the replica: rack c has "
        "none of it, and there it carries least)"
    ) in result.output
    assert f"Nothing has moved. Review {path}, then: anabranch apply {path}" in result.output
    file = json.loads(path.read_text())
    assert (file["cluster_id"], len(file["moves"])) == (cluster.cluster_id, 2)
    again = verb("plan", "drain", "--broker", "3", "--json")
    assert json.loads(again.stdout)["moves"] == file["moves"]
    assert verb("partitions", "reassign", "--list").stdout == "No replica is moving.\n"


def test_what_cannot_be_says_what_it_would_take(cluster, verb, topic, tmp_path):
    topic("full", "1:2:3:4")
    path = tmp_path / "plan.json"
    result = verb("plan", "drain", "--broker", "3", "--out", str(path))
    assert result.exit_code == 1, "a script must not take it for done"
    assert "drain broker 3: nothing can move." in result.output
    assert (
        "Obstacle: the replica of full-0 on broker 3: all other brokers already have a replica "
        "of it: it has 4. Needed: one more active broker that is not cordoned, or a lower "
        "replication factor."
    ) in result.output
    assert not path.exists()
    path.write_text("an earlier plan")
    stale = verb("plan", "drain", "--broker", "3", "--out", str(path), "--json")
    assert stale.exit_code == 1, "whoever applies the file now would apply another plan"
    assert f"{path} is an earlier plan" in json.loads(stale.stdout)["error"]["message"]
    lower = verb("plan", "factor", "--topic", "full", "--replication-factor", "3", "--json")
    (move,) = json.loads(lower.stdout)["moves"]
    assert (len(move["to"]), move["why"]) == (3, "FACTOR_CHANGED")


def test_racks_and_unknown_brokers(verb, topic):
    topic("close", "3:4,1:2")
    found = json.loads(verb("plan", "racks", "--json").stdout)
    assert [(each["topic"], each["partition"]) for each in found["moves"]] == [("close", 0)]
    for goal in ("add", "drain"):
        unknown = verb("plan", goal, "--broker", "1", "--broker", "9")
        assert (unknown.exit_code, unknown.stdout) == (1, "")
        assert "Not registered: broker 9; known: 1, 2, 3, 4." in unknown.stderr


def written(verb, path, *words: str) -> str:
    """A plan in a file; its path."""
    result = verb("plan", *words, "--out", str(path))
    assert result.exit_code == 0, result.output
    assert path.exists(), result.output
    return str(path)


def until(verb, state: str):
    """Wait until the plan is in that state; how it fares then."""
    for _ in range(300):
        result = verb("plan", "status", "--json")
        assert result.exit_code == 0, result.output
        told = json.loads(result.stdout)
        if told["state"] == state:
            return told
        time.sleep(0.1)
    raise AssertionError(f"not {state}: {told}")


def rows(verb, name: str) -> list[list[int]]:
    (told,) = json.loads(verb("topics", "describe", "--topic", name, "--json").stdout)
    return [each["replicas"] for each in told["partitions"]]


def test_a_cluster_says_that_it_has_no_plan(node, against):
    said = against(node.bootstrap)("plan", "status").stdout
    assert said == "No plan has been applied to this cluster.\n"


def test_what_was_reviewed_is_carried_out_and_rolled_back(cluster, verb, topic, tmp_path):
    topic("reviewed", "1:2:3,2:3:1,3:1:2")
    path = written(verb, tmp_path / "plan.json", "drain", "--broker", "3")
    before = rows(verb, "reviewed")
    begun = verb("apply", path, "--most-at-once", "1", "--throttle", "100000000")
    assert begun.exit_code == 0, begun.output
    assert re.search(r"^Plan \d+ to drain broker 3: running", begun.output, re.MULTILINE)
    assert "It cordoned broker 3: no new replicas go there." in begun.output
    told = until(verb, "done")
    assert (told["done"], told["waiting"]) == (3, 0)
    assert rows(verb, "reviewed") == [
        each["to"] for each in json.loads((tmp_path / "plan.json").read_text())["moves"]
    ]
    again = verb("apply", path)
    assert again.exit_code == 0
    assert re.search(r"^Plan \d+ to drain broker 3: done", again.output, re.MULTILINE)
    back = verb("plan", "roll-back")
    assert "rolling back" in back.output
    until(verb, "rolled back")
    assert rows(verb, "reviewed") == before
    assert "3 back, 0 under way" in verb("plan", "status").output


def test_a_plan_that_is_too_large_is_written_as_far_as_one_can_be_applied(
    verb, topic, tmp_path, monkeypatch
):
    topic("large", "1:3,2:3,1:3")
    monkeypatch.setattr("anabranch.core.controller.moves.plans.MOST_MOVES", 2)
    path = tmp_path / "plan.json"
    made = verb("plan", "drain", "--broker", "3", "--out", str(path))
    assert "3 partitions to move" in made.output
    assert "It holds the first 2 moves: when they are done, plan again." in made.output
    assert verb("apply", str(path)).exit_code == 0
    until(verb, "done")
    rest = json.loads(verb("plan", "drain", "--broker", "3", "--json").stdout)
    assert [each["partition"] for each in rest["moves"]] == [2]


def test_a_plan_survives_the_death_of_its_controller(cluster, verb, topic, tmp_path):
    topic("survivor", ",".join(["1:2:3", "2:3:1", "3:1:2"] * 6))
    cluster.wait_in_sync("survivor")
    path = written(verb, tmp_path / "plan.json", "drain", "--broker", "3")
    assert verb("apply", path, "--most-at-once", "1").exit_code == 0
    until_under_way(verb)
    active = cluster.controller()
    cluster.kill(active)
    try:
        told = json.loads(verb("plan", "status", "--json").stdout)
        assert (told["state"], told["done"] < 18) == ("running", True)
        assert cluster.controller() != active
    finally:
        cluster.start_broker(active)
    assert until(verb, "done")["done"] == 18
    assert not any(3 in row for row in rows(verb, "survivor"))
    cluster.wait_in_sync("survivor")


def until_under_way(verb) -> None:
    """Wait until the first moves of the plan are done or copy."""
    for _ in range(300):
        told = json.loads(verb("plan", "status", "--json").stdout)
        if told["done"]:
            return
        time.sleep(0.05)
    raise AssertionError(told)


def plan_file(path, **fields) -> str:
    """A plan of one move, stuck-0 from 1, 2 to 1, 4; its path."""
    move = {
        "topic": "stuck", "partition": 0, "from": [1, 2], "to": [1, 4], "why": "BROKER_DRAINED",
        "because": "broker 2 is drained",
    }  # fmt: skip
    plan = {"version": 1, "goal": "try", "made_at_ms": 5, **fields, "moves": [move]}
    path.write_text(json.dumps(plan))
    return str(path)


@pytest.mark.slow
def test_a_plan_is_paused_resumed_and_cancelled_while_a_broker_does_not_copy(
    cluster, verb, topic, tmp_path
):
    topic("stuck", "1:2,2:1")
    cluster.wait_in_sync()
    path = plan_file(tmp_path / "plan.json", cluster_id=cluster.cluster_id)
    with cluster.pause(4):
        assert verb("apply", path).exit_code == 0
        until_begun(verb)
        assert ": paused (" in verb("plan", "pause").output
        assert ": running (" in verb("plan", "resume").output
        other = plan_file(tmp_path / "b.json", cluster_id=cluster.cluster_id, made_at_ms=6)
        assert "Another plan is open, to try (running)" in verb("apply", other).output
        assert verb("apply", path).exit_code == 0, "the same plan again is the same plan"
        cancelled = verb("plan", "cancel")
        assert ": cancelled (cancelled 1 move" in cancelled.output
        assert rows(verb, "stuck") == [[1, 2], [2, 1]]
        assert "No plan is open" in verb("plan", "resume").output
    cluster.wait_in_sync()


def test_the_throttle_of_a_plan_is_left_to_it(cluster, verb, topic, tmp_path):
    topic("stuck", "1:2,2:1")
    cluster.wait_in_sync()
    path = plan_file(tmp_path / "plan.json", cluster_id=cluster.cluster_id)
    moves = tmp_path / "moves.json"
    moves.write_text('{"partitions": [{"topic": "stuck", "partition": 1, "replicas": [2, 1]}]}')
    of_broker = ("configs", "describe", "--entity-type", "brokers", "--entity-name", "1")
    with cluster.pause(4):
        assert verb("apply", path, "--throttle", "1000000").exit_code == 0
        until_begun(verb)
        assert verb("partitions", "reassign", "--verify", "--file", str(moves)).exit_code == 0
        assert "replication.throttled.rate" in verb(*of_broker).stdout
        assert ": cancelled (" in verb("plan", "cancel").output
        assert "replication.throttled.rate" not in verb(*of_broker).stdout
    cluster.wait_in_sync()


def until_begun(verb) -> None:
    for _ in range(300):
        told = json.loads(verb("plan", "status", "--json").stdout)
        if told["under_way"]:
            assert [each["partition"] for each in told["moves"]] == [0]
            return
        time.sleep(0.05)
    raise AssertionError(told)


def test_plans_that_do_not_fit_are_refused_in_one_sentence(cluster, verb, topic, tmp_path):
    topic("stuck", "1:2,2:1")
    path = tmp_path / "plan.json"
    foreign = verb("apply", plan_file(path, cluster_id="other"))
    assert "The plan was made for cluster other" in foreign.output
    cluster.stop_broker(4)
    try:
        down = verb("apply", plan_file(path, cluster_id=cluster.cluster_id))
        assert "broker 4, the target of stuck-0, is down" in down.output
    finally:
        cluster.start_broker(4)
    path.write_text(path.read_text().replace('"why": "BROKER_DRAINED", ', ""))
    broken = verb("apply", str(path))
    assert f"{path}: line 1, why: it is missing" in broken.output
    for result in (foreign, down, broken):
        assert (result.exit_code, "Traceback" in result.output) == (1, False)
    cluster.wait_in_sync()


def test_explain_says_why_here_why_not_there_and_why_nothing_moves(cluster, verb, topic):
    topic("told", "1:2:3")
    topic("near", "3:4")
    cluster.wait_in_sync()
    text = verb("explain", "told-0")
    assert text.exit_code == 0, text.output
    assert "told-0: led by broker 1, in sync 1, 2, 3" in text.output
    assert "no move is needed: its replicas are in different racks" in text.output
    told = json.loads(verb("explain", "told-0", "--json").stdout)
    (there,) = told["not_there"]
    assert (there["broker_id"], there["it_would_take"]) == (4, [])
    assert [each["state"] for each in told["here"]] == ["leader", "in sync", "in sync"]
    close = verb("explain", "near-0")
    assert "`anabranch plan racks` would move it from 3, 4 to 3, 1" in close.output
    assert "Why these brokers would not get the next replica:" in close.output


def test_explain_of_what_is_not_there(verb):
    unknown = verb("explain", "nowhere-7")
    assert (unknown.exit_code, "There is no partition nowhere-7." in unknown.output) == (1, True)
    assert "is not a partition: write it as flights-3" in verb("explain", "nowhere").output


def test_what_explain_says_it_would_take_is_true(cluster, verb, topic):
    """The answer is applied, and the plan asked again."""
    topic("room", "1:2:4")
    factor = ("plan", "factor", "--topic", "room", "--replication-factor", "4", "--json")
    assert verb("cluster", "cordon", "--broker", "3").exit_code == 0
    try:
        told = json.loads(verb("explain", "room-0", "--json").stdout)
        (there,) = told["not_there"]
        assert there["sentence"] == "it is cordoned"
        assert [each["change"] for each in there["it_would_take"]] == ["UNCORDON"]
        assert json.loads(verb(*factor).stdout)["moves"] == []
    finally:
        assert verb("cluster", "uncordon", "--broker", "3").exit_code == 0
    (move,) = json.loads(verb(*factor).stdout)["moves"]
    assert move["to"] == [1, 2, 4, 3]


def test_plans_keep_to_placement_constraints(cluster, verb, topic):
    topic("bound", "1:3")
    setting = "confluent.placement.constraints=[replicas=a:1,c:1]"
    altered = verb("configs", "alter", "--entity-type", "topics", "--entity-name", "bound",
                   "--add-config", setting)  # fmt: skip
    assert altered.exit_code == 0, altered.output
    (move,) = json.loads(verb("plan", "drain", "--broker", "3", "--json").stdout)["moves"]
    assert move["to"] == [1, 4]
    none = verb("plan", "drain", "--broker", "1")
    assert (
        "the placement constraints of its topic require it in rack a, where no other broker"
        in none.output
    )
    assert (
        "it satisfies the placement constraints of bound: 1 in rack a, 1 in rack c"
        in verb("explain", "bound-0").output
    )
