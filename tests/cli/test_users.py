"""`anabranch users` and `--add-scram`: passwords come from where other processes do not see them."""

from __future__ import annotations

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
