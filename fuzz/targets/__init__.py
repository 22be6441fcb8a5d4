"""What can be fuzzed, one file a target; each has `TARGET`."""

from __future__ import annotations

from dataclasses import replace

from fuzz.target import Target
from fuzz.targets import config, decode, folder, log, stream


def _with_seeds() -> Target:
    from fuzz import seeds  # which need the target

    return replace(stream.TARGET, seeds=lambda: list(seeds.stream()))


TARGETS: dict[str, Target] = {
    each.name: each
    for each in (_with_seeds(), log.TARGET, folder.TARGET, decode.TARGET, config.TARGET)
}
"""By name; the stream of frames has most of the inputs."""
