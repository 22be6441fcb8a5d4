"""R15: a node that cannot start says in one line what and what to do, and damages nothing."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest
from tests.clients.adapters import SECONDS, Confluent, Sent
from tests.clients.test_durability import make_topic, read_all
from tests.server.node_kit import free_port


def refusal(node):
    """The one line of a node that did not start."""
    code, errors = node.ended()
    assert code == 1, errors
    assert "Traceback" not in errors
    lines = [line for line in errors.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, errors
    return lines[0]


def contents(folder):
    """Digest of every file but the lock."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture
def stopped(start):
    """A node's folder after an orderly stop, with ten records in topic t."""
    node = start().ready()
    make_topic(node.bootstrap)
    Confluent(node.bootstrap).produce("t", [Sent(None, b"%d" % n) for n in range(10)])
    stop(node)
    return node.folder


def stop(node):
    node.process.send_signal(signal.SIGTERM)
    code, errors = node.ended()
    assert code == 0, errors


def still_there(node):
    node.ready()
    return [each.record.value for each in read_all(node.bootstrap)] == [
        b"%d" % n for n in range(10)
    ]


@pytest.mark.slow
def test_a_used_port_and_the_folder_is_as_it_was(start, stopped, tmp_path):
    other = start(tmp_path / "other").ready()
    before = contents(stopped)
    line = refusal(start(stopped, port=other.port))
    assert f"127.0.0.1:{other.port}" in line
    assert "in use" in line
    logs = {name: digest for name, digest in before.items() if "t-0/" in name}
    assert logs.items() <= contents(stopped).items()
    assert (stopped / ".kafka_cleanshutdown").exists()
    assert still_there(start(stopped))


def test_a_folder_in_use(start, stopped):
    first = start(stopped).ready()
    line = refusal(start(stopped, port=free_port()))
    assert str(stopped) in line
    assert "in use by another node" in line
    assert still_there(first)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [("node.id", "7", "belongs to node 7"), ("cluster.id", "AAAAAAAAAAAAAAAAAAAAAA", "cluster")],
)
def test_a_foreign_folder(start, stopped, name, value, says):
    meta = stopped / "meta.properties"
    own = meta.read_text()
    meta.write_text(re.sub(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", own))
    before = contents(stopped)
    line = refusal(start(stopped))
    assert says in line
    assert str(stopped) in line
    assert "correct" in line
    assert contents(stopped) == before
    meta.write_text(own)
    assert still_there(start(stopped))


def test_a_file_in_the_place_of_the_folder(start, tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    line = refusal(start(file))
    assert f"{file} is not a folder; correct log.dirs" in line
    assert file.read_text() == "mine"


def test_plaintext_beyond_loopback_is_meant_or_refused(start, tmp_path):
    listeners = f"PLAINTEXT://0.0.0.0:{free_port()},CONTROLLER://127.0.0.1:0"
    line = refusal(start(listeners=listeners))
    assert "listener.plaintext.beyond.loopback.allow" in line
    assert not (tmp_path / "node").exists()


def store_files(folder):
    return [path for path in folder.iterdir() if path.name.startswith("metadata-store.db")]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["default", "elsewhere with a space"])
@pytest.mark.parametrize("loss", ["lost", "gone back"])
def test_a_store_that_is_not_the_copys_names_the_command_that_restores_it(
    start, tmp_path, where, loss
):
    stores = tmp_path / "node" if where == "default" else tmp_path / "the stores"
    settings = {}
    if where != "default":
        settings["metadata.store.url"] = f"sqlite://{stores}/metadata-store.db"
    node = start(**settings).ready()
    stop(node)
    backup = tmp_path / "backup"
    backup.mkdir()
    for path in store_files(stores):
        shutil.copy(path, backup)
    node = start(**settings).ready()
    make_topic(node.bootstrap)
    Confluent(node.bootstrap).produce("t", [Sent(None, b"%d" % n) for n in range(10)])
    stop(node)
    for path in store_files(stores):
        path.unlink()
    if loss == "gone back":
        for path in backup.iterdir():
            shutil.copy(path, stores)
    line = refusal(start(**settings))
    assert ("went back" if loss == "gone back" else "lost") in line
    command = shlex.split(re.search(r"`(anabranch metadata restore[^`]*)`", line)[1])
    done = subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert still_there(start(**settings))
