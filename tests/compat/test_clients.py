"""The table's clients, without any of them: fetching once, and what their rows take out of a text."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def clients(monkeypatch, tmp_path):
    """`compat.clients` with a cache of its own."""
    monkeypatch.syspath_prepend(str(ROOT))
    import compat.clients as found  # noqa: PLC0415

    monkeypatch.setattr(found, "CACHE", tmp_path)
    return found


def test_a_client_is_fetched_once_a_version(clients):
    filled = []

    def fill(folder):
        assert list(folder.iterdir()) == []
        filled.append(folder)
        (folder / "a-file").touch()

    for version in ("1", "1", "2"):
        assert clients.once("peer", version, fill) == clients.CACHE / "peer"
    assert len(filled) == 2


def test_a_fetch_that_failed_is_tried_again(clients):
    def fail(_folder):
        raise SystemExit("no network")

    with pytest.raises(SystemExit, match="no network"):
        clients.once("peer", "1", fail)
    filled = []
    clients.once("peer", "1", filled.append)
    assert filled


def test_a_missing_program_is_named(clients):
    clients.needs("sh")
    with pytest.raises(SystemExit, match="no-such-program not installed"):
        clients.needs("sh", "no-such-program")


def test_the_first_error_of_an_installer_is_the_reason(clients, tmp_path):
    script = "echo begun; echo 'ERROR: no such version' >&2; echo Help; exit 3"
    with pytest.raises(SystemExit, match="sh ended with 3: ERROR: no such version"):
        clients.run(["sh", "-c", script], tmp_path)


@pytest.mark.parametrize(
    ("line", "ordered"),
    [
        ("Topic: a Configs: b=1,a=x", "Topic: a Configs: a=x,b=1"),
        ("Topic: a Partition: 0 Leader: 1", "Topic: a Partition: 0 Leader: 1"),
    ],
)
@pytest.mark.usefixtures("clients")
def test_configurations_are_compared_in_one_order(line, ordered):
    from compat.families.streams import with_sorted_configs  # noqa: PLC0415

    assert with_sorted_configs(line) == ordered


def test_versions_are_those_that_are_fetched(clients):
    named = clients.versions()
    assert named["kafkajs"] == clients.KAFKAJS
    assert named["Spark's Kafka connector"] == clients.SPARK
    assert named["Kafka Streams"] == named["Kafka Connect"]


def test_a_kcat_that_is_not_there_is_said(clients, monkeypatch):
    monkeypatch.setattr(clients.shutil, "which", lambda _name: None)
    assert clients.kcat_version() == "not here"
    with pytest.raises(SystemExit, match="kcat is not installed"):
        clients.fetch_kcat()
