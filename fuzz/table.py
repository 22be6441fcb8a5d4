"""The table of targets. The stream of frames begins with conversations, which need its session."""

from __future__ import annotations

from dataclasses import replace

from fuzz import seeds
from fuzz.target import Target
from fuzz.targets import config, decode, folder, log, login, stream

STREAM = replace(stream.TARGET, seeds=lambda: list(seeds.stream()))

TARGETS: dict[str, Target] = {
    each.name: each
    for each in (STREAM, log.TARGET, folder.TARGET, decode.TARGET, config.TARGET, login.TARGET)
}
"""By name; the stream of frames has most of the inputs."""
