"""`--json` on every verb, faults included; unknown verbs are answered."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import click
import pytest

from anabranch.cli.main import main

SNAKE = re.compile(r"[a-z][a-z0-9_]*")


def leaves(command, path=()):
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from leaves(command.get_command(context, name), (*path, name))
    else:
        yield " ".join(path), command


@pytest.mark.parametrize(("verb_name", "leaf"), list(leaves(main)), ids=lambda each: str(each))
def test_every_verb_prints_json_for_programs(verb_name, leaf):
    assert any("--json" in each.opts for each in leaf.params), verb_name


def test_a_script_for_a_shell_is_json_for_programs(verb):
    told = json.loads(verb("completion", "bash", "--json").stdout)
    assert told == {"shell": "bash", "script": verb("completion", "bash").stdout.removesuffix("\n")}


@pytest.mark.parametrize("start", [("serve", "--set", "node.id=2"), ("up", "--set", "node.id=2")])
def test_a_node_that_cannot_start_says_so_in_json(start, tmp_path):
    """The folder belongs to another node: the configuration is sound, and the start fails."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=abc\n")
    words = (*start, "--dir", str(tmp_path), "--port", "0", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert "belongs to node 7" in error["message"]
    assert "Error" not in done.stderr


def keys_of(value):
    """The keys of all objects within, but for those that name things of the cluster."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_of(inner) if key not in ("configs", "changed", "supported") else ()
    for each in value if isinstance(value, list) else ():
        yield from keys_of(each)


@pytest.mark.parametrize(
    "words",
    [
        "sim --seed 3 --verdict", "sim --seed 3 --verdict --mirror", "rehearse rack-loss --show",
        "rehearse rack-loss --transcript", "rehearse --list", "topics describe", "cluster status",
        "cluster brokers", "cluster describe", "cluster features", "cluster id", "plan racks",
        "groups list", "groups describe", "transactions list", "topics migrate written", "version",
        "configs describe --topic written --all", "partitions reassign --list", "plan status",
        "transactions producers written --partition 0", "explain written-0", "quotas list",
        "users list", "cluster roll --dry-run --unavailable-allow", "cluster upgrade --dry-run", "topics list",
    ],
)  # fmt: skip
def test_keys_are_written_in_one_way(verb, words):
    """Schedules counted `isr-shrink`, and a rehearsal's file and transcript were no JSON."""
    if "written" in words:
        verb("topics", "create", "--topic", "written", "--if-not-exists")
    done = verb(*words.split(), "--json")
    assert done.exit_code == 0, done.output
    odd = [key for key in keys_of(json.loads(done.stdout)) if not SNAKE.fullmatch(key)]
    assert not odd


def test_what_was_done_is_json(verb):
    verb("topics", "create", "--topic", "told", "--partitions", "1")
    said = [
        verb("topics", "alter", "--topic", "told", "--partitions", "2", "--json"),
        verb("configs", "alter", "--entity-type", "topics", "--entity-name", "told",
             "--add-config", "retention.ms=60000", "--json"),
        verb("produce", "--topic", "told", "--json", input="a\nb\n"),
        verb("topics", "delete", "--topic", "told", "--json"),
        verb("version", "--json"),
    ]  # fmt: skip
    assert [each.exit_code for each in said] == [0] * len(said)
    altered, changed, produced, deleted, version = (json.loads(each.stdout) for each in said)
    assert altered == {"topic": "told", "partitions": 2}
    assert changed["changed"] == {"retention.ms": "60000"}
    assert (produced["topic"], produced["records"]) == ("told", 2)
    assert deleted == {"topic": "told", "deleted": True}
    assert version.keys() == {"version"}


def test_faults_are_json_with_a_code_and_a_remedy(verb, against):
    refused = verb("topics", "delete", "--topic", "absent", "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stdout)["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    lost = against("127.0.0.1:1")("cluster", "id", "--json", "--timeout", "0.2")
    assert lost.exit_code == 1
    error = json.loads(lost.stdout)["error"]
    assert (error["code"], error["remedy"][:9]) == ("CONNECTION_LOST", "Start one")
    usage = verb("topics", "describe", "--json", "--no-such")
    assert usage.exit_code == 2
    assert json.loads(usage.stdout)["error"]["code"] == "USAGE"


@pytest.mark.parametrize(
    ("words", "near"), [(["topcs"], "'topics'"), (["topics", "describ"], "'describe'")]
)
def test_an_unknown_verb_names_the_one_that_it_resembles(verb, words, near):
    done = verb(*words)
    assert done.exit_code == 2
    assert f"No such command '{words[-1]}'. Did you mean {near}?" in done.output


def test_consume_stops_when_nothing_comes(verb):
    verb("topics", "create", "--topic", "quiet")
    for words in (["--timeout", "0.5"], ["--timeout-ms", "500"]):
        done = verb("consume", "--topic", "quiet", *words)
        assert done.exit_code == 0
        assert "Processed a total of 0 records." in done.stderr
    both = verb("consume", "--topic", "quiet", "--timeout", "1", "--timeout-ms", "1")
    assert "--timeout and --timeout-ms have the same meaning" in both.output
