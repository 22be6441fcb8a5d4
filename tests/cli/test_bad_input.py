"""Whatever is wrong with the words of a verb, one clear sentence says so; for every verb.

What the words of each verb may be wrong in is taken from its parser. Not here: what brokers refuse
(`test_verbs`), bad bytes on the wire (`tests/bad_input`).
"""

from __future__ import annotations

import json
from itertools import permutations

import click
import pytest
from click.testing import CliRunner
from tests.cli.test_name_option import ALL

from anabranch.cli.main import main
from anabranch.cli.name_option import PlacedNames

AWAY = ("--bootstrap-server", "127.0.0.1:1")
PARAMETERS = [(name, each) for name, verb in ALL.items() for each in verb.params]
TYPED = [
    (name, each)
    for name, each in PARAMETERS
    if isinstance(each, click.Option)
    and not each.is_flag
    and each.type is not click.STRING
    and not isinstance(each.type, click.Path)
]
FILES = [(name, each) for name, each in PARAMETERS if isinstance(each.type, click.Path)]
NEEDED = [
    (name, each) for name, each in PARAMETERS if each.required and not isinstance(each, PlacedNames)
]
BY_NETWORK = [name for name, each in PARAMETERS if "--bootstrap-server" in each.opts]
LATE = {"plan add", "plan drain", "plan factor", "plan observers", "plan racks"}
"""Verbs that write a file in the end: the folder may be made meanwhile."""
MORE_WORDS = {
    "acls add": ["--topic", "t", "--allow-principal", "User:a", "--operation", "read"],
    "acls remove": ["--topic", "t"],
    "cluster roll": ["--dry-run"],
    "configs alter": ["--topic", "t", "--add-config", "retention.ms=1"],
    "configs describe": ["--topic", "t"],
    "consume": ["--topic", "t"],
    "groups reset-offsets": ["--to-earliest"],
    "partitions elect-leaders": ["--topic", "t"],
    "partitions reassign": ["--list"],
    "quotas set": ["--user", "u"],
    "quotas remove": ["--user", "u"],
    "spark compact": ["--dry-run"],
    "spark tier": ["--storage-url", "memory://a"],
    "transactions abort": ["--start-offset", "0"],
    "users set": ["--password-file", "-"],
}
"""What a verb needs beside what its parser requires."""
MOVE = {
    "topic": "t",
    "partition": 0,
    "from": [1],
    "to": [2],
    "why": "BROKER_DRAINED",
    "because": "so",
}


def words_of(name: str, *, without: click.Parameter | None = None) -> list[str]:
    """The least words with which a verb begins its work."""
    words = []
    for each in ALL[name].params:
        if each.required and each is not without and not isinstance(each, PlacedNames):
            option = [each.opts[0]] if isinstance(each, click.Option) else []
            words += [*option, sound(name, each)]
    return words + MORE_WORDS.get(name, [])


def sound(name: str, parameter: click.Parameter) -> str:
    if isinstance(parameter.type, click.Choice):
        return str(parameter.type.choices[0])
    if isinstance(parameter.type, click.IntRange):
        return "1"
    if isinstance(parameter.type, click.Path):
        return __file__
    return {"explain": "t-0", "quotas set": "producer_byte_rate=1",
            "quotas remove": "producer_byte_rate"}.get(name, "some")  # fmt: skip


def refusal(*words: str) -> str:
    """What is said of these words, in one sentence, without anything that only programmers know."""
    done = CliRunner().invoke(main, words, input="secret\n")
    assert done.exit_code in (1, 2), (words, done.output)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    (said,) = [each for each in done.stderr.splitlines() if each.startswith("Error: ")]
    assert "Traceback" not in done.output and " range" not in said.removesuffix("range."), said
    return said


@pytest.mark.parametrize("verb", ALL)
def test_no_option_takes_the_place_of_another_one(verb):
    """Of two that mean the same parameter the parser silently keeps the last."""
    names = [each.name for each in ALL[verb].params]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("pair", list(permutations(["plan", "execute", "status", "cancel"], 2)))
def test_a_migration_is_told_one_thing(pair):
    words = ["topics", "migrate", "--topic", "t", *AWAY, *(f"--{each}" for each in pair)]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 2
    assert "Error: Give only one of --plan, --execute, --status and --cancel.\n" in told.stderr


@pytest.mark.parametrize(("name", "option"), TYPED, ids=lambda each: str(each))
def test_a_value_of_another_type_is_named_with_what_it_should_be(name, option):
    said = refusal(*name.split(), *words_of(name, without=option), option.opts[0], "zzz")
    assert "'zzz' is" in said
    assert any(kind in said for kind in ("a valid integer", "a valid number", "one of", "write"))


@pytest.mark.parametrize(("name", "where"), FILES, ids=lambda each: str(each))
def test_a_file_that_is_not_there_is_named(name, where, tmp_path):
    if (name in LATE and "--out" in where.opts) or name == "remote export":
        pytest.skip("it is written in the end")
    if "--notes" in where.opts:
        pytest.skip("it is made")
    option = [where.opts[0]] if isinstance(where, click.Option) else []
    absent = str(tmp_path / "absent")
    said = refusal(*name.split(), *words_of(name, without=where), *option, absent)
    assert absent in said and ("exist" in said or "o such file" in said)


@pytest.mark.parametrize(("name", "needed"), NEEDED, ids=lambda each: str(each))
def test_a_word_that_is_missing_is_named(name, needed):
    done = CliRunner().invoke(main, [*name.split(), *words_of(name, without=needed)])
    assert done.exit_code == 2
    assert "Missing" in done.stderr


@pytest.mark.parametrize("name", BY_NETWORK)
def test_a_broker_that_is_away_is_named_with_what_helps(name, tmp_path):
    words = words_of(name)
    if name == "apply":
        plan = {"version": 1, "cluster_id": "a", "goal": "b", "made_at_ms": 1, "moves": [MOVE]}
        (tmp_path / "plan").write_text(json.dumps(plan))
        words = [str(tmp_path / "plan")]
    waits = any("--timeout" in each.opts for each in ALL[name].params)
    said = refusal(*name.split(), *words, *AWAY, *(["--timeout", "0.5"] if waits else []))
    assert "127.0.0.1:1 cannot be reached" in said and "`anabranch up`" in said
