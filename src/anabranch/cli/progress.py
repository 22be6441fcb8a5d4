"""What a command says on standard error while it works for more than two seconds.

Rule kept: standard output has only results. Not here: progress that a job counts by itself
(`spark`), a wait for a cluster (`cluster_command.waiting_told`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from anabranch.cli.cluster_command import SILENCE_SECONDS


@contextmanager
def told_while(what: str, done: Callable[[], str] | None = None) -> Iterator[Callable[[], object]]:
    """Say every few seconds that something is still done, and how much of it is; what is given ends
    that."""
    over = threading.Event()

    def tell() -> None:
        begin, silence = time.monotonic(), SILENCE_SECONDS / 2
        while not over.wait(silence):
            silence = SILENCE_SECONDS
            much = "" if done is None else f"{done()}, "
            click.echo(f"{what}: {much}{time.monotonic() - begin:.0f} s so far.", err=True)

    threading.Thread(target=tell, daemon=True).start()
    try:
        yield over.set
    finally:
        over.set()
