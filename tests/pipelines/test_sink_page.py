"""The page `docs/pipelines/sink.md` lists every option with its default, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from anabranch.pipelines.producer_options import (
    REFUSED,
    WITH_EFFECT,
    WITHOUT_EFFECT,
)
from anabranch.pipelines.sink_rows import ALLOWED

PAGE = (Path(__file__).parents[2] / "docs/pipelines/sink.md").read_text()


def table(heading):
    """The cells of the rows of a section's table, without its head."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_options_with_effect_have_their_default_and_meaning():
    expected = [
        [f"`kafka.{name}`", f"`{each.default}`" if each.default else "", each.meaning]
        for name, each in WITH_EFFECT.items()
    ]
    assert table("Options that take effect") == expected


def test_options_without_effect_have_their_reason():
    assert table("Options without effect") == [
        [f"`kafka.{name}`", why] for name, why in WITHOUT_EFFECT.items()
    ]


def test_refused_options_have_their_remedy():
    assert table("Options that are refused") == [
        [f"`kafka.{name}`", why] for name, why in REFUSED.items()
    ]


def test_columns_are_listed_with_their_types():
    listed = {row[0].strip("`"): row[1] for row in table("Columns")}
    assert listed.keys() == ALLOWED.keys()
    for name, types in ALLOWED.items():
        told = re.sub(r"[\s`]", "", listed[name])
        assert told == "or".join(each.simpleString() for each in types)
