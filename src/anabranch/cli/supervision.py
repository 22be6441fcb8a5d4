"""How another command asks a running `anabranch up` to restart one of its nodes.

What: the supervisor holds a lock in its folder and looks there for files named `restart-N`, which
`ask_restart` puts there; taking the file away is the supervisor's answer. Why files: whoever may
write the folder may restart its nodes, and nobody else; there is no port and no process id that
could be another's. Rule kept: a request is taken once, and one without a supervisor is refused.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from pathlib import Path

import click

FOLDER = "supervisor"
LOCK = "lock"
REQUEST = re.compile(r"restart-(\d+)")
ANSWER_SECONDS = 10.0
LOOK_SECONDS = 0.05


class Requests:
    """The supervisor's side."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise click.ClickException(
                f"another `anabranch up` runs in {folder}; stop that one, or take another --dir"
            ) from None
        self.take()  # what was asked of a supervisor that is gone

    def take(self) -> list[int]:
        """The nodes that shall be restarted; each request is given once."""
        found = []
        for name in sorted(os.listdir(self._folder)):
            match = REQUEST.fullmatch(name)
            if match is not None:
                (self._folder / name).unlink()
                found.append(int(match[1]))
        return found

    def close(self) -> None:
        """Stop supervising the folder."""
        os.close(self._lock)


def check_supervised(folder: str) -> None:
    """Raise ClickException unless an `anabranch up` runs in that folder."""
    try:
        lock = os.open(Path(folder) / FOLDER / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        raise _unsupervised(folder) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    finally:
        os.close(lock)
    raise _unsupervised(folder)


def _unsupervised(folder: str) -> click.ClickException:
    return click.ClickException(
        f"no `anabranch up --brokers` runs in {folder}; give its --dir, or a --restart-command"
    )


def ask_restart(folder: str, node_id: int) -> None:
    """Have the supervisor restart a node; returns when it begins. Raises ClickException."""
    check_supervised(folder)
    request = Path(folder) / FOLDER / f"restart-{node_id}"
    request.touch()
    until = time.monotonic() + ANSWER_SECONDS
    while request.exists():
        if time.monotonic() > until:
            request.unlink(missing_ok=True)
            raise click.ClickException(
                f"the `anabranch up` in {folder} did not accept the request for broker {node_id} "
                f"within {ANSWER_SECONDS:.0f} s; check its output"
            )
        time.sleep(LOOK_SECONDS)
