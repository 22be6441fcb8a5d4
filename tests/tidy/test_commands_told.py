"""Commands on pages are commands that there are: each verb and each option of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from anabranch.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    *sorted((ROOT / "docs").glob("start/*.md")),
    *sorted((ROOT / "docs").glob("concepts/*.md")),
    *sorted((ROOT / "docs").glob("operate/*.md")),
    *sorted((ROOT / "docs").glob("pipelines/*.md")),
]
TOLD = re.compile(r"^\s*\$ (.*\banabranch .*)$|`(anabranch [a-z][^`\n]*)`", re.MULTILINE)
FEWEST = 60
"""Commands that the pages have at least: fewer, and the pattern above finds them no more."""


def commands(page: Path) -> list[list[str]]:
    """The words behind `anabranch` of each command on a page that is not a shell's own puzzle."""
    text = page.read_text().replace("\\\n", " ")
    found = []
    for shown, quoted in TOLD.findall(text):
        line = re.split(r"\s{2,}#", shown or quoted)[0]
        if "$(" in line or "…" in line:
            continue
        words = shlex.split(line)
        found += [words[at + 1 :] for at, word in enumerate(words) if runs(words[:at], word)]
    return found


def runs(before: list[str], word: str) -> bool:
    """Whether this word is the command itself, and not the name of a user or an image."""
    return word.endswith("anabranch") and (not before or before[-1] in ("|", "sudo", "eval"))


def fault(words: list[str]) -> str | None:
    """The first word that is neither a verb nor an option of it."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inner = command.get_command(click.Context(command), words[0].split("|")[0])
        if inner is None:
            return words[0]
        command, words = inner, words[1:]
    known = {"--help", *(option for each in command.params for option in each.opts)}
    asked = (each.split("=")[0] for word in words for each in word.split("|"))
    return next((each for each in asked if each.startswith("--") and each not in known), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_command_of_a_page_is_one_that_there_is(page):
    assert [(words, fault(words)) for words in commands(page) if fault(words)] == []


def test_the_pages_have_commands():
    assert sum(len(commands(page)) for page in PAGES) >= FEWEST
    assert fault(["topics", "describe", "--under-replicated"]) == "--under-replicated"
    assert fault(["topics", "make"]) == "make"
