"""The rows of three brokers: what their drivers decide without a cluster."""

from __future__ import annotations


def test_the_longest_gap_is_one_that_ends_after_the_fault(module):
    longest_gap = module("outage").longest_gap
    assert longest_gap([0.0, 5.0, 5.5, 6.0, 9.0, 9.5], fault=6.2) == 3.0
    assert longest_gap([0.0, 5.0], fault=6.0) == 0.0
    assert longest_gap([], fault=6.0) == 0.0


def test_three_nodes_are_told_of_each_other_and_keep_their_defaults(module, tmp_path):
    trio = module("trio").AnabranchTrio(work=tmp_path)
    settings = [each.settings for each in trio.nodes.values()]
    assert [each["node.id"] for each in settings] == [1, 2, 3]
    for shared in ("metadata.store.url", "controller.quorum.bootstrap.servers"):
        assert len({each[shared] for each in settings}) == 1
    controllers = [f"127.0.0.1:{each.controller_port}" for each in trio.nodes.values()]
    assert settings[0]["controller.quorum.bootstrap.servers"] == ",".join(controllers)
    assert len({*controllers, *trio.bootstrap.split(",")}) == 6
    chosen = {"log.segment.delete.delay.ms", "min.insync.replicas", "node.id"}
    assert set(settings[0]) - chosen == {
        "metadata.store.url",
        "controller.quorum.bootstrap.servers",
    }
    trio.stop()
    assert not list(tmp_path.iterdir())


def test_kafkas_quorum_is_the_three(module):
    trio = module("trio")
    kafka = object.__new__(trio.KafkaTrio)
    settings = kafka.membership({1: 101, 2: 102, 3: 103})
    voters = "1@127.0.0.1:101,2@127.0.0.1:102,3@127.0.0.1:103"
    assert settings["controller.quorum.voters"] == voters


def test_a_trios_topics_have_three_replicas_and_wait_for_all(module):
    trio = module("trio").Trio
    single = module("servers").Server
    assert (trio.replicas, trio.acks) == (3, "all")
    assert (single.replicas, single.acks) == (1, 1)


def test_victims_take_turns_unless_the_controller_is_wanted(module):
    outage = module("outage")
    cluster = object.__new__(module("trio").Trio)
    cluster.controller = lambda: 2
    assert [outage.choose(cluster, decides=False)[1] for _ in range(4)] == [3, 1, 3, 1]
    assert outage.choose(cluster, decides=True) == (cluster, 2)


def test_the_bytes_of_a_topic_are_those_of_its_own_segments(module, tmp_path):
    for name, size in (("t-0/0.log", 5), ("t-1/0.log", 7), ("t-0/0.index", 9), ("u-0/0.log", 1)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(size))
    assert module("wiped").log_bytes(tmp_path, "t") == 12


def test_rows_of_the_same_servers_follow_each_other(module):
    rows = module("rows").ROWS
    kinds = [(row.servers, row.settings) for row in rows if not row.fresh]
    trio = module("trio")
    at = [number for number, (servers, _) in enumerate(kinds) if servers is trio.TRIOS]
    assert at == list(range(at[0], at[-1] + 1))
