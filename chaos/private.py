"""Namespaces of its own for a run, so that it can mount and rewire without touching the machine.

What: `enter` starts this program again through `unshare`, with a mount namespace and, when it is
asked for, a network namespace. Why at the start: both are then gone with the last process of the
run, also after a kill. Rule kept: what cannot be had is said and left out; the run goes on without.
Not here: what is done inside (`disks`, `network`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

from chaos.disks import is_memory_enough

MARK = "ANABRANCH_CHAOS_NAMESPACES"
MOUNT, NET = "--mount", "--net"
TOOLS = ("unshare", "nsenter", "ip", "mount")


class Private(NamedTuple):
    """What this process has for itself."""

    mounts: bool
    network: bool


def enter(*, network: bool, say: Callable[[str], None]) -> Private:
    """What can be had; returns in a process that has it."""
    given = os.environ.get(MARK)
    if given is None and (options := _possible(network)):
        words = ["unshare", *options, "--", sys.executable, "-m", "chaos", *sys.argv[1:]]
        os.execvpe("unshare", words, {**os.environ, MARK: " ".join(options)})
    found = Private(MOUNT in (given or ""), NET in (given or ""))
    if found.mounts and not is_memory_enough():
        found = found._replace(mounts=False)
    if not found.mounts:
        say("left out, as it needs root, unshare and 6 GiB of memory: disks that are really full")
    if network and not found.network:
        say("left out, as it needs root, unshare and ip: network namespaces")
    return found


def _possible(network: bool) -> list[str]:
    if os.geteuid() != 0 or not all(map(shutil.which, TOOLS)):
        return []
    for options in ([MOUNT, NET], [MOUNT]) if network else ([MOUNT],):
        done = subprocess.run(["unshare", *options, "true"], capture_output=True, check=False)
        if done.returncode == 0:
            return options
    return []
