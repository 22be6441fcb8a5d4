"""Both ways to name what a verb is about, for every verb that is about one thing."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from anabranch.cli.main import SECTIONS, VERBS, main
from anabranch.cli.name_option import NamingOption, PlacedNames

NAMES = {"--topic", "--group", "--broker", "--id", "--user"}
BY_OPTION_ONLY = {
    "acls list", "acls add", "acls remove", "quotas list", "quotas set", "quotas remove",
    "mirror translate", "remote export",
}  # fmt: skip
"""Verbs that are about one of many kinds of things, or whose words without an option are files."""
PLACED_ONLY = {"quotas set", "quotas remove", "rehearse", "completion"}
"""Verbs whose words without an option are settings, or no things of a cluster."""


def verbs(command=main, prefix=""):
    if not isinstance(command, click.Group):
        return {prefix.strip(): command}
    context, found = click.Context(command), {}
    for name in command.list_commands(context):
        found |= verbs(command.get_command(context, name), f"{prefix} {name}")
    return found


ALL = verbs()
NAMING = {
    name: option
    for name, verb in ALL.items()
    for option in verb.params
    if isinstance(option, NamingOption)
}


def parsed(name: str, words: list[str]) -> object:
    """What the verb would get for its option; required options that are not asked about are
    left out."""
    verb, option = ALL[name], NAMING[name]
    context = click.Context(verb)
    context.resilient_parsing = True
    verb.parse_args(context, words)
    return context.params[option.name]


@pytest.mark.parametrize("name", sorted(NAMING))
def test_a_thing_is_named_with_and_without_its_option(name):
    option = NAMING[name]
    word = "7" if isinstance(option.type, click.IntRange) else "seven"
    with_option = parsed(name, [option.opts[0], word])
    assert with_option is not None and with_option == parsed(name, [word])
    assert parsed(name, [word, "--json"] if name != "consume" else [word]) == with_option


@pytest.mark.parametrize("name", sorted(NAMING))
def test_help_shows_one_form(name):
    said = CliRunner().invoke(main, [*name.split(), "--help"]).stdout
    usage, option = said.splitlines()[0], NAMING[name]
    shows_option = f" {option.opts[0]} " in said.partition("Example:")[0]
    assert shows_option != usage.endswith(str(option.metavar)), said


@pytest.mark.parametrize("name", sorted(NAMING))
def test_a_thing_that_is_named_twice_is_refused(name):
    option = NAMING[name]
    said = CliRunner().invoke(main, [*name.split(), "7", option.opts[0], "8"])
    assert said.exit_code == 2
    assert "name it once" in said.stderr or "unexpected extra" in said.stderr


def test_verbs_about_one_thing_know_both_forms():
    lacking = {
        name
        for name, verb in ALL.items()
        if any(NAMES & set(each.opts) for each in verb.params) and name not in NAMING
    }
    assert lacking <= BY_OPTION_ONLY, lacking - BY_OPTION_ONLY


def test_things_that_stand_alone_have_an_option_too():
    """Files have none: there is nothing that they could be taken for."""
    lacking = {
        name
        for name, verb in ALL.items()
        for each in verb.params
        if isinstance(each, click.Argument)
        and not isinstance(each, PlacedNames)
        and not isinstance(each.type, click.Path)
    }
    assert lacking <= PLACED_ONLY, lacking - PLACED_ONLY


def test_help_lists_each_verb_once():
    assert sorted(verb for verbs in SECTIONS.values() for verb in verbs) == sorted(VERBS)
    said = CliRunner().invoke(main, ["--help"]).stdout
    for heading in SECTIONS:
        assert f"\n{heading}:\n" in said
