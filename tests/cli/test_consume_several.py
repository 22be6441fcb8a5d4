"""Records of several topics, of topics by pattern, and records with headers."""

from __future__ import annotations

import json

import pytest

from anabranch.cli.produce import format_of

TOPICS = ("river-a", "river-b", "lake")


@pytest.fixture(scope="module")
def written(cluster, against):
    """Two records in each of three topics."""
    verb = against(cluster.bootstrap_servers)
    for topic in TOPICS:
        assert verb("topics", "create", topic, "--partitions", "2").exit_code == 0
        done = verb("produce", topic, input=f"{topic} 1\n{topic} 2\n")
        assert done.exit_code == 0, done.output
    return verb


def consumed(verb, *words):
    done = verb("consume", *words, "--from-beginning", "--timeout", "1", "--json")
    assert done.exit_code == 0, done.output
    return sorted(
        (each["topic"], each["value"]) for each in map(json.loads, done.stdout.splitlines())
    )


def all_of(*topics):
    return sorted((topic, f"{topic} {number}") for topic in topics for number in (1, 2))


def test_several_topics_are_read_together(written):
    assert consumed(written, "river-a", "lake") == all_of("river-a", "lake")
    assert consumed(written, "--topic", "river-a", "--topic", "lake") == all_of("river-a", "lake")


def test_topics_are_read_by_a_pattern_of_their_whole_name(written):
    assert consumed(written, "--include", "river-.*") == all_of("river-a", "river-b")
    assert consumed(written, "--include", "lak.") == all_of("lake")


def test_no_more_than_was_asked_for_is_printed_of_all_topics_together(written):
    done = written("consume", *TOPICS, "--from-beginning", "--max-messages", "3", "--timeout", "9")
    assert len(done.stdout.splitlines()) == 3
    assert "Processed a total of 3 records." in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--include", "sea"], "matches no topic"),
        (["--include", "["], "no regular expression"),
        (["lake", "--include", "x"], "either --topic"),
        ([], "either --topic"),
        (["lake", "river-a", "--partition", "0"], "of one topic"),
    ],
)
def test_what_cannot_be_read_is_refused(written, words, why):
    done = written("consume", *words)
    assert done.exit_code == 2 and why in done.stderr


@pytest.mark.parametrize(
    "words", [TOPICS, ("--include", "river-.*|lake")], ids=["named", "pattern"]
)
def test_a_group_reads_several_topics_and_commits_what_was_printed_of_each(written, words):
    """However the records are cut into runs: each record once, and the lag is 0 at the end."""
    group, seen = f"g-{words[0]}", []
    for most in ("1", "3", "9"):
        done = written(
            "consume", *words, "--group", group, "--from-beginning", "--json",
            "--max-messages", most, "--timeout", "2",
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        seen += map(json.loads, done.stdout.splitlines())
    assert sorted((each["topic"], each["value"]) for each in seen) == all_of(*TOPICS)
    told = json.loads(written("groups", "describe", group, "--json").stdout)
    lags = {(each["topic"], each["partition"]): each["lag"] for each in lag_rows(told)}
    assert lags == {(topic, index): 0 for topic in TOPICS for index in (0, 1)}


def lag_rows(told):
    """The rows of offsets in the description of a group."""
    (described,) = told.get("groups", [told])
    return described["offsets"] if "offsets" in described else described["partitions"]


def test_a_topic_that_comes_later_is_read_by_the_group_too(written, cluster):
    """A pattern: the member joins again for it, and the others' offsets stay."""
    import threading

    assert written("topics", "create", "late-1").exit_code == 0
    assert written("produce", "late-1", input="before\n").exit_code == 0

    def create():
        assert written("topics", "create", "late-2").exit_code == 0
        assert written("produce", "late-2", input="after\n").exit_code == 0

    timer = threading.Timer(3.0, create)
    timer.start()
    try:
        done = written(
            "consume", "--include", "late-.*", "--group", "late", "--from-beginning",
            "--max-messages", "2", "--timeout", "60",
        )  # fmt: skip
    finally:
        timer.join()
    assert sorted(done.stdout.splitlines()) == ["after", "before"], done.output


def test_headers_and_keys_come_from_a_line(written):
    assert written("topics", "create", "headed", "--partitions", "1").exit_code == 0
    forms = ("--property", "parse.headers=true", "--property", "parse.key=true",
             "--property", "null.marker=NULL")  # fmt: skip
    done = written("produce", "headed", *forms, input="a:1,b:NULL\tk\tv\n\tNULL\tw\n")
    assert done.exit_code == 0, done.output
    said = written("consume", "headed", "--from-beginning", "--timeout", "1", "--json").stdout
    first, second = map(json.loads, said.splitlines())
    assert (first["headers"], first["key"], first["value"]) == ([["a", "1"], ["b", None]], "k", "v")
    assert (second["headers"], second["key"], second["value"]) == ([], None, "w")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"a:1", "Line 7 has no headers: no '\\t' in it."),
        (b"a\tv", "Line 7 has a header without a value: no ':' in it."),
    ],
)
def test_a_line_without_its_headers_is_named(line, why):
    with pytest.raises(Exception, match="What came before was sent") as fault:
        format_of(["parse.headers=true"]).cut(line, 7)
    assert str(fault.value.message).startswith(why)
