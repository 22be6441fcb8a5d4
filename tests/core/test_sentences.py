"""Numbers in sentences agree with their nouns."""

from __future__ import annotations

import re
from pathlib import Path
from time import process_time

import pytest

from anabranch.core.sentences import in_number, named, number_of

SOURCES = Path(__file__).resolve().parents[2] / "src" / "anabranch"
BOTH = re.compile(r"[a-z]\((?:s|es)\)")
KAFKAS = {
    "core/placement/placer.py",
    "core/controller/topics/assignments.py",
    "core/controller/topics/topics.py",
}
"""Some of their sentences are Kafka's, word for word, as its tools show them."""


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 boxes"), (1, "1 box"), (2, "2 boxes"), (1000, "1,000 boxes")]
)
def test_a_noun_agrees_with_its_number(count, said):
    assert number_of(count, "box", "boxes") == said


def test_things_are_named():
    assert named([3], "broker") == "broker 3"
    assert named((3, 4), "broker") == "brokers 3, 4"
    assert number_of(1, "object") == "1 object"


def test_no_sentence_leaves_the_plural_to_its_reader():
    found = [
        f"{path.relative_to(SOURCES)}:{number}"
        for path in SOURCES.rglob("*.py")
        if str(path.relative_to(SOURCES)) not in KAFKAS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if BOTH.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("kafkas", "told"),
    [
        ("only 1 broker(s) are registered.", "only 1 broker is registered."),
        ("only 2 broker(s) are registered.", "only 2 brokers are registered."),
        ("Topic already has 1 partition(s).", "Topic already has 1 partition."),
        ("add 12 additional partition(s), but", "add 12 additional partitions, but"),
        ("only 1 assignment(s) were specified.", "only 1 assignment was specified."),
        ("ClientQuotaEntity(entries={})", "ClientQuotaEntity(entries={})"),
    ],
)
def test_sentences_of_kafkas_are_told_in_number(kafkas, told):
    assert in_number(kafkas) == told


@pytest.mark.parametrize("piece", ["1", "1 ", "1 a", "a ", "1 a(", "1 a(s) "])
def test_a_long_text_in_a_sentence_is_read_once(piece):
    """A value that a client has chosen may have 32,767 characters, and sentences repeat it."""
    begun = process_time()
    in_number(piece * (32_767 // len(piece)))
    assert process_time() - begun < 1
