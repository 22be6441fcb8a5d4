"""`python -m chaos`: three real brokers, faults from a seed, real clients, and a verdict."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from anabranch.testing import ClusterError
from chaos import streams
from chaos.private import MARK, enter
from chaos.report import Report
from chaos.run import run

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 120.0
ENDED = 130
"""The exit code of a program that Ctrl-C ended."""


def main() -> int:
    """Parse the arguments and run; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, help=f"of faults (default {SECONDS:g})")
    parser.add_argument("--seed", type=int, help="of the faults (default: a new one)")
    parser.add_argument("--store", choices=("both", "sqlite", "postgres"), default="both")
    parser.add_argument(
        "--objects", choices=("folder", "s3"), default="folder", help="where diskless records lie"
    )
    parser.add_argument("--folder", type=Path, help="a new one, for everything")
    parser.add_argument("--keep", action="store_true", help="keep logs of a clean run too")
    parser.add_argument(
        "--namespaces", action="store_true", help="a network namespace for each node (needs root)"
    )
    parser.add_argument(
        "--secure", action="store_true", help="SASL_SSL for clients and between nodes"
    )
    arguments = parser.parse_args()
    if arguments.folder is not None and not is_free(arguments.folder):
        parser.error(f"{arguments.folder} holds something that a run would remove: name a new one")
    network = arguments.namespaces or given("NETNS") == 1
    if arguments.secure and network:
        parser.error("--secure makes certificates for nodes on one host: leave namespaces out")
    if MARK not in os.environ:  # where there is a network, if there is any
        streams.fetch(say)
    private = enter(network=network, say=say)
    program = streams.find()
    if program is None:
        say(f"left out, as {streams.LEFT_OUT}: Kafka Streams")
    seed = arguments.seed if arguments.seed is not None else given("SEED")
    seed = time.time_ns() % 2**31 if seed is None else int(seed)
    seconds = arguments.seconds or given("SECONDS") or SECONDS
    folder = (arguments.folder or ROOT / ".cache" / "chaos" / f"seed-{seed}").resolve()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    say(f"seed {seed}, {seconds:g} s of faults; everything is in {folder}")
    try:
        parts = run(
            folder,
            seed=seed,
            seconds=seconds,
            store=arguments.store,
            say=say,
            private=private,
            objects=arguments.objects,
            program=program,
            is_secure=arguments.secure,
        )
    except (ClusterError, OSError) as fault:
        say(f"The run broke off: {fault}")
        return 1
    except KeyboardInterrupt:
        say("The run was ended; nothing of it goes on.")
        return ENDED
    report = Report(seed, commit(), parts)
    (folder / "report.json").write_text(json.dumps(report.as_dict(), indent=1))
    say(report.text())
    if report.is_clean and not arguments.keep:
        clear(folder)
    return 0 if report.is_clean else 1


def is_free(folder: Path) -> bool:
    """Whether nothing is there, or an empty folder."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def given(name: str) -> float | None:
    """What `make chaos SECONDS=… SEED=…` says; bash's own SECONDS is not passed on."""
    text = os.environ.get(name, "")
    return float(text) if text.replace(".", "", 1).isdigit() else None


def say(text: str) -> None:
    """To whoever watches, at once."""
    print(text, flush=True)


def commit() -> str:
    """What was run."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return asked.stdout.strip() or "unknown"


def clear(folder: Path) -> None:
    """A clean run leaves its report."""
    for each in folder.iterdir():
        if each.is_dir():
            shutil.rmtree(each)


if __name__ == "__main__":
    sys.exit(main())
