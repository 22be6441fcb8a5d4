"""`anabranch users` and `--add-scram`: passwords come from where other processes do not see them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from anabranch.cli.main import main


def refused(*words, given=None):
    done = CliRunner().invoke(main, list(words), input=given)
    assert done.exit_code
    return done.output


def test_a_password_file_is_named_when_it_cannot_be_read(tmp_path):
    assert "cannot be read" in refused("users", "set", "a", "--password-file", str(tmp_path / "no"))


def test_an_empty_password_is_refused():
    assert "no password" in refused("users", "set", "a", "--password-file", "-", given="\n")


def test_a_password_is_no_option():
    assert "No such option" in refused("users", "set", "a", "--password", "secret")


@pytest.mark.parametrize(
    ("content", "why"),
    [("alice:secret", "cannot be read"), ("SCRAM-SHA-256=[name=a,password=secret]\n" * 2, "twice")],
)
def test_first_users_that_cannot_be_read_are_told_without_passwords(tmp_path, content, why):
    file = tmp_path / "users"
    file.write_text(content)
    said = refused("serve", "--dir", str(tmp_path / "data"), "--add-scram", f"@{file}")
    assert why in said and "secret" not in said


def test_what_was_done_is_told_to_people_and_to_programs(verb):
    name = ("alice", "--mechanism", "SCRAM-SHA-256")
    done = verb("users", "set", *name, "--password-file", "-", "--json", input="secret\n")
    assert json.loads(done.stdout) == {
        "user": "alice", "set": ["SCRAM-SHA-256"], "iterations": 8192,
    }  # fmt: skip
    shown = json.loads(verb("users", "list", "alice", "--json").stdout)
    assert shown == [{"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 8192}]
    gone = json.loads(verb("users", "remove", "alice", "--json").stdout)
    assert gone == {"user": "alice", "removed": ["SCRAM-SHA-256"]}
    assert "logs in with" in verb("users", "set", *name, "--password-file", "-", input="s\n").stdout
    assert "no longer logs in" in verb("users", "remove", "alice").stdout
