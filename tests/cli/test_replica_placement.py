"""R9: `--replica-placement` reads text or a file, and names what is wrong before a node is asked."""

from __future__ import annotations

import json

import click
import pytest

from anabranch.cli.replica_placement import placement_of

JSON = json.dumps({"version": 2, "replicas": [{"count": 1, "constraints": {"rack": "east"}}]})


def test_text_and_files_are_taken(tmp_path):
    file = tmp_path / "placement.json"
    file.write_text(JSON + "\n")
    assert placement_of("replicas=east:1") == "replicas=east:1"
    assert placement_of(JSON) == placement_of(str(file)) == JSON


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("replicas=east", "--replica-placement: 'replicas=east': write RACK:COUNT"),
        ("{", "--replica-placement: line 1, column 2"),
        ("no-such-file.json", "neither text such as replicas=east:2 nor a file that can be read"),
    ],
)
def test_what_cannot_be_read_is_named(given, words):
    with pytest.raises(click.ClickException) as refused:
        placement_of(given)
    assert words in refused.value.message


def test_a_mistake_in_a_file_is_named_with_the_file(tmp_path):
    file = tmp_path / "placement.json"
    file.write_text('{"version": 2,\n "replicas": [}')
    with pytest.raises(click.ClickException, match=r"placement\.json: line 2, column 15"):
        placement_of(str(file))
