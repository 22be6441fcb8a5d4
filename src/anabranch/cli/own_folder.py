"""The folder of `anabranch up`: never one that holds other things, never left behind by a refusal.

Rules kept: a folder that is neither empty nor ours is refused before a byte is written into it;
a start that fails removes what it put into a folder that was new or empty, and nothing else.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from anabranch.server.folders import MOST_NAMED, NOTHING
from anabranch.server.one_machine import OBJECTS

OURS = frozenset(
    {"meta.properties", "metadata-store.db", "supervisor", "broker-1", "broker-1.log", OBJECTS}
)
"""What `up` itself puts into its folder: one of these tells that the folder is ours."""


def refuse_listed(folder: str) -> None:
    """Raise ClickException for a folder that a node would take for others: `log.dirs` is a list."""
    if "," in folder or folder != folder.strip():
        raise click.ClickException(
            f"--dir {folder!r}: log.dirs, where nodes have it, separates folders by commas and "
            "drops spaces around them; name another folder"
        )


def refuse_foreign(folder: Path) -> None:
    """Raise ClickException for a folder that is neither empty nor ours, or cannot be read."""
    try:
        names = {each.name for each in folder.iterdir()} - NOTHING
    except FileNotFoundError:
        return
    except OSError as fault:
        raise click.ClickException(
            f"--dir {folder}: {fault.strerror}; name a folder for the cluster's data"
        ) from None
    if names and names.isdisjoint(OURS):
        shown = ", ".join(sorted(names)[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
        raise click.ClickException(
            f"--dir {folder} contains other files ({shown}); use a new or an empty folder"
        )


@contextlib.contextmanager
def no_leftovers(folder: Path) -> Iterator[Callable[[], None]]:
    """Empty the folder again when the block ends, if it was new or empty before; a call of what is
    yielded says that the start went well, and keeps everything."""
    before = {each.name for each in folder.iterdir()} if folder.exists() else None
    started = []
    try:
        _create(folder)
        yield lambda: started.append(True)
    finally:
        if not started and not (before or set()) - NOTHING:
            _remove_new(folder, before)


def _create(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise click.ClickException(
            f"--dir {folder}: {fault.strerror}; name a folder that can be made"
        ) from None


def _remove_new(folder: Path, before: set[str] | None) -> None:
    if before is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for each in folder.iterdir():
        if each.name not in before:
            shutil.rmtree(each, ignore_errors=True) if each.is_dir() else each.unlink()
