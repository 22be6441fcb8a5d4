"""The verbs that look at files: log dump, log verify, metadata dump, metadata restore, version."""

from __future__ import annotations

import json
import shutil

import click
import pytest
from click.testing import CliRunner
from tests.server.node_kit import ThreadNode

from anabranch import __version__
from anabranch.cli.main import main

SEGMENT = "00000000000000000000.log"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of a node that has stopped: topic `t`, 300 records in batches."""
    folder = tmp_path_factory.mktemp("written")
    node = ThreadNode(folder, log_index_interval_bytes=64).start()
    environment = {"ANABRANCH_BOOTSTRAP_SERVER": node.bootstrap}
    try:
        for start in (0, 100, 200):
            text = "".join(f"value {start + n}\n" for n in range(100))
            done = CliRunner().invoke(
                main, ["produce", "--topic", "t", "--compression-codec", "lz4"],
                input=text, env=environment,
            )  # fmt: skip
            assert done.exit_code == 0, done.output
    finally:
        node.stop()
    return folder


@pytest.fixture
def copy(written, tmp_path):
    """A copy of that folder that a test may damage."""
    return shutil.copytree(written, tmp_path / "copy")


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_dump_shows_batches_and_records(copy):
    plain = run("log", "dump", copy / "t-0")
    assert plain.exit_code == 0
    assert "100-199 at" in plain.stdout
    data = run("log", "dump", copy / "t-0", "--print-data-log", "--json", "--from-offset", "200")
    (batch,) = [json.loads(line) for line in data.stdout.splitlines()]
    assert (batch["base_offset"], batch["codec"], batch["records"]) == (200, "lz4", 100)
    assert batch["data"][5]["value"] == "value 205"


def test_a_sound_log_is_said_to_be_sound(copy):
    done = run("log", "verify", copy, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["faults"] == 0
    assert sum(each["records"] for each in found["segments"] if "/t-0/" in each["file"]) == 300


def test_a_flipped_bit_is_found_and_named(copy):
    segment = copy / "t-0" / SEGMENT
    data = bytearray(segment.read_bytes())
    second = int.from_bytes(data[8:12], "big") + 12
    data[second + 70] ^= 1
    segment.write_bytes(data)
    done = run("log", "verify", copy / "t-0")
    assert done.exit_code == 1
    assert f"{segment}: at position {second}: the checksum does not match" in done.output
    assert "offsets 100 to 199 are not as they were written" in done.output
    dumped = run("log", "dump", segment)
    assert dumped.exit_code == 1
    assert "0-99 at 0" in dumped.stdout
    assert "200-299 at" in dumped.stdout


def test_a_torn_end_is_found_and_named(copy):
    segment = copy / "t-0" / SEGMENT
    segment.write_bytes(segment.read_bytes()[:-10])
    done = run("log", "verify", copy / "t-0")
    assert done.exit_code == 1
    assert "the batch is incomplete; offsets from 200 on are not readable here" in done.output


def test_an_index_that_points_elsewhere_is_found(copy):
    index = copy / "t-0" / SEGMENT.replace(".log", ".index")
    entries = bytearray(index.read_bytes())
    assert len(entries) >= 8
    entries[3] ^= 1
    index.write_bytes(entries)
    done = run("log", "verify", copy / "t-0")
    assert done.exit_code == 1
    assert str(index) in done.output


def test_a_folder_without_segments_says_so(tmp_path):
    done = run("log", "verify", tmp_path)
    assert done.exit_code == 1
    assert "No segment" in done.output


def test_the_metadata_log_is_shown_record_by_record(copy):
    done = run("metadata", "dump", copy, "--json")
    assert done.exit_code == 0, done.output
    records = [json.loads(line) for line in done.stdout.splitlines()]
    topics = [each for each in records if each["type"] == "TopicRecord"]
    assert [each["fields"]["name"] for each in topics] == ["t"]
    assert records[0]["type"] == "LEADER_CHANGE"
    assert "RegisterBrokerRecord" in run("metadata", "dump", copy).stdout


def test_a_file_of_something_else_is_no_metadata(tmp_path):
    (tmp_path / "notes.txt").write_text("bootstrap.servers=127.0.0.1:9092\n" * 5)
    done = run("metadata", "dump", tmp_path / "notes.txt")
    assert done.exit_code == 1
    assert "no record batch" in done.output and "Traceback" not in done.output


def test_the_log_of_a_topic_is_no_metadata(copy):
    said = run("metadata", "dump", copy / "t-0")
    assert said.exit_code == 1
    assert "`anabranch log dump` shows those" in said.stderr


@pytest.mark.parametrize(
    "words", [("--seconds", "nan"), ("--seconds", "-1"), ("--processes", "0"), ("--seed", "-1")]
)
def test_a_campaign_that_would_never_end_is_refused(words):
    assert run("sim", *words).exit_code == 2


def test_the_copy_of_a_node_that_runs_is_left_alone(copy):
    node = ThreadNode(copy).start()
    try:
        done = run("metadata", "restore", "--dir", copy)
    finally:
        node.stop()
    assert done.exit_code == 1
    assert "in use by another node" in done.output


def test_a_lost_store_is_restored_by_the_verb(copy):
    (copy / "metadata-store.db").unlink()
    done = run("metadata", "restore", "--dir", copy)
    assert done.exit_code == 0, done.output
    assert "again" in done.output
    node = ThreadNode(copy).start()
    try:
        listed = CliRunner().invoke(main, ["topics", "list", "--bootstrap-server", node.bootstrap])
        assert listed.stdout.split() == ["t"]
    finally:
        node.stop()


def test_a_store_that_holds_more_than_the_copy_is_left_alone(written, copy, tmp_path):
    shorter = shutil.copytree(written, tmp_path / "shorter")
    node = ThreadNode(copy).start()
    try:
        address = ("--bootstrap-server", node.bootstrap)
        assert run("topics", "create", "--topic", "later", *address).exit_code == 0
    finally:
        node.stop()
    store = f"metadata.store.url=sqlite:///{copy}/metadata-store.db"
    before = (copy / "metadata-store.db").read_bytes()
    done = run("metadata", "restore", "--dir", shorter, "--set", store)
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    assert (copy / "metadata-store.db").read_bytes() == before


def test_of_several_copies_the_longest_is_restored(written, copy, tmp_path):
    shorter = shutil.copytree(written, tmp_path / "shorter")
    node = ThreadNode(copy).start()
    node.stop()
    folders = ("--dir", shorter, "--dir", copy)
    nameless = run("metadata", "restore", *folders)
    assert (nameless.exit_code, "--set metadata.store.url" in nameless.output) == (2, True)
    store = f"metadata.store.url=sqlite:///{tmp_path}/new.db"
    done = run("metadata", "restore", *folders, "--set", store)
    assert done.exit_code == 0, done.output
    assert f"The longest copy is that in {copy}." in done.output


def test_a_store_that_went_on_without_a_longer_copy_is_left_alone(written, copy, tmp_path):
    longer = shutil.copytree(written, tmp_path / "longer")
    for folder, topics in ((copy, ()), (longer, ("one", "two", "three"))):
        node = ThreadNode(folder).start()
        try:
            for each in topics:
                words = ("topics", "create", "--topic", each)
                assert run(*words, "--bootstrap-server", node.bootstrap).exit_code == 0
        finally:
            node.stop()
    store = copy / "metadata-store.db"
    before = store.read_bytes()
    done = run(
        "metadata", "restore", "--dir", longer, "--set", f"metadata.store.url=sqlite:///{store}"
    )
    assert (done.exit_code, "has other records before offset" in done.output) == (1, True)
    assert store.read_bytes() == before
    new = f"metadata.store.url=sqlite:///{tmp_path}/new.db"
    done = run("metadata", "restore", "--dir", copy, "--dir", longer, "--set", new)
    assert (done.exit_code, f"{copy} has other records" in done.output) == (1, True)


def test_copies_of_two_clusters_are_not_mixed(written, copy, tmp_path):
    other = shutil.copytree(written, tmp_path / "other")
    meta = other / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=x"))
    store = f"metadata.store.url=sqlite:///{tmp_path}/new.db"
    done = run("metadata", "restore", "--dir", copy, "--dir", other, "--set", store)
    assert (done.exit_code, "belong to clusters" in done.output) == (1, True)


def test_restore_wants_to_know_which_node():
    done = run("metadata", "restore")
    assert done.exit_code == 2
    assert "--config FILE, or --dir DIR" in done.output


def test_the_version_is_the_packages():
    assert run("version").stdout == f"anabranch {__version__}\n"
    assert run("--version").stdout == run("version").stdout


@pytest.mark.parametrize(
    "group", ["topics", "partitions", "plan", "configs", "groups", "cluster", "log", "metadata"]
)
def test_help_lists_verbs_with_whole_sentences(group):
    _usage, _commands, verbs = run(group, "--help").stdout.partition("Commands:")
    assert "Example: anabranch" in verbs
    assert "..." not in verbs


def every_verb(verb, words=()):
    """Each command with the words that name it."""
    yield words, verb
    if isinstance(verb, click.Group):
        for name in verb.list_commands(click.Context(verb)):
            yield from every_verb(verb.get_command(click.Context(verb), name), (*words, name))


@pytest.mark.parametrize("columns", [80, 60])
def test_an_example_can_be_copied_from_the_help(columns):
    for words, verb in every_verb(main):
        said = CliRunner().invoke(main, [*words, "--help"], terminal_width=columns).output
        _, _, example = said.rpartition("  Example: ")
        assert " ".join(example.replace(" \\\n", " ").split()) == " ".join(
            verb.epilog.removeprefix("Example: ").split()
        )
        parts = example.rstrip("\n").split("\n")
        assert all(each.endswith(" \\") for each in parts[:-1])
        assert all(each.strip().startswith("--") for each in parts[1:])


def test_a_number_that_is_none_is_refused_in_plain_words():
    assert "'abc' is not a valid integer." in run("up", "--port", "abc").output
    assert (
        "'abc' is not a valid number of seconds."
        in run("topics", "list", "--timeout", "abc").output
    )
