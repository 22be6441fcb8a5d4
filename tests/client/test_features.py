"""The plan of an upgrade: no higher than all support, never down, and who holds it back."""

from __future__ import annotations

import pytest

from anabranch.client.features import Feature, Raise, raises
from anabranch.core.errors import ClientFault

FEATURES = [
    Feature("group.version", 1, {1: (0, 1), 2: (0, 1)}),
    Feature("metadata.version", 22, {1: (7, 27), 2: (7, 25)}),
    Feature("new.version", 0, {1: (0, 1), 2: (0, 0)}),
]


def test_each_goes_to_the_newest_that_all_support():
    assert raises(FEATURES, None) == [Raise("metadata.version", 22, 25)]


def test_who_holds_it_back_is_named():
    assert [each.holding_back for each in FEATURES] == [[], [2], [2]]
    assert [each.newest for each in FEATURES] == [1, 27, 1]


def test_what_is_wanted_is_what_is_asked_for():
    assert raises(FEATURES, {"metadata.version": 27}) == [Raise("metadata.version", 22, 27)]
    assert raises(FEATURES, {"metadata.version": 22}) == []


@pytest.mark.parametrize(
    ("name", "level", "said"),
    [
        ("no.such", 1, "There is no feature no.such; there are group.version, metadata.version"),
        ("metadata.version", 21, "metadata.version is at level 22; an upgrade cannot lower it"),
    ],
)
def test_what_cannot_be_is_said(name, level, said):
    with pytest.raises(ClientFault, match=said.replace(".", r"\.")):
        raises(FEATURES, {name: level})
