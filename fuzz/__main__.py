"""`python -m fuzz`: fuzz, say what there is to say, minimise the corpus, or run one input again."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from fuzz import coverage

coverage.install()

from fuzz import minimise, store  # noqa: E402
from fuzz.engine import Fuzzer  # noqa: E402
from fuzz.table import TARGETS  # noqa: E402
from fuzz.verdict import Broken  # noqa: E402


def main() -> int:
    """Parse the arguments and do what they say; 1 when a rule was broken."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="how long (default: until Ctrl-C)")
    parser.add_argument("--inputs", type=int, help="end after so many inputs")
    parser.add_argument("--seed", type=int, help="of chance (default: a new one)")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this one")
    parser.add_argument("--replay", metavar="FILE", help="run a finding's input, with its trace")
    parser.add_argument("--minimise", action="store_true", help="write fuzz/corpus anew")
    parser.add_argument("--modules", action="store_true", help="branches reached, by module")
    arguments = parser.parse_args()
    if arguments.replay:
        return replay(Path(arguments.replay))
    if arguments.minimise:
        return minimise.main([TARGETS[name] for name in arguments.target or TARGETS])
    return fuzz(arguments)


def given_seconds() -> float | None:
    """What `make fuzz SECONDS=…` says; bash has a variable of that name, which is not passed on."""
    text = os.environ.get("SECONDS", "")
    return float(text) if text.replace(".", "", 1).isdigit() else None


def fuzz(arguments: argparse.Namespace) -> int:
    """Fuzz and sum up."""
    seconds = arguments.seconds if arguments.seconds is not None else given_seconds()
    seed = time.time_ns() % 2**32 if arguments.seed is None else arguments.seed
    targets = [TARGETS[name] for name in arguments.target or TARGETS]
    fuzzer = Fuzzer(targets, seed=seed)
    signal.signal(signal.SIGINT, fuzzer.stop)
    signal.signal(signal.SIGTERM, fuzzer.stop)
    ending = "Ctrl-C ends it" if not seconds else f"{seconds:g} s"
    print(f"seed {seed}, targets {', '.join(each.name for each in targets)}; {ending}", flush=True)
    fuzzer.go(seconds or None, arguments.inputs)
    sum_up(fuzzer, modules=arguments.modules)
    return 1 if fuzzer.findings else 0


def sum_up(fuzzer: Fuzzer, *, modules: bool) -> None:
    """What this run did, and all runs on this machine together."""
    print(f"this run: {fuzzer.line()}")
    for name, inputs in sorted(fuzzer.inputs.items()):
        rate = inputs / max(fuzzer.seconds[name], 1e-9)
        print(f"  {name:12} {inputs:>12,} inputs  {rate:>8,.0f} a CPU second")
    counts = fuzzer.total()
    inputs = sum(each["inputs"] for targets in counts.values() for each in targets.values())
    requests = sum(each["requests"] for targets in counts.values() for each in targets.values())
    print(
        f"all runs here: {inputs:,} inputs with {requests:,} requests, commits {', '.join(counts)}"
    )
    for name, times in fuzzer.findings.most_common():
        print(f"  BROKEN {name} ({times:,} times)")
    if modules:
        for module, (reached, places) in coverage.by_module().items():
            print(f"  {module:60} {reached:>5} of {places:>5} branches")


def replay(path: Path) -> int:
    """Run one input; its trace goes to the error output."""
    for entry in store.read(path):
        TARGETS[path.stem.partition("-")[0]].run(entry)
    print("no rule was broken")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as fault:
        sys.exit(f"BROKEN {fault}")
