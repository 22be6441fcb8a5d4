"""Where a run's profiles lie: one file a process, beside whatever else bears the name.

What: the name of a node's profile, and what took longest in each of them.
Not here: starting a process under the profiler (`servers.py`).
"""

from __future__ import annotations

import pstats
from pathlib import Path

PROFILE_LINES = 40


def node_profile(profile: Path, number: int) -> Path:
    """The file of one of several nodes."""
    return profile.with_suffix(f".{number}")


def written_profiles(profile: Path) -> list[Path]:
    """The files that the run left: the one that was asked for, or one a node."""
    beside = sorted(profile.parent.glob(f"{profile.stem}.*"))
    nodes = [each for each in beside if each.suffix[1:].isdecimal() and each != profile]
    return [each for each in (profile, *nodes) if each.is_file()]


def print_profiles(profile: Path) -> None:
    """What took longest, process by process."""
    for path in written_profiles(profile):
        pstats.Stats(str(path)).sort_stats("tottime").print_stats(PROFILE_LINES)
