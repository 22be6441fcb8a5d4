"""The command line's first step: for the console script, and for `python -m anabranch`.

Why: loading the command line takes tenths of a second, in which Ctrl-C would end with a traceback.
A stream that is closed, as in some daemons, is None to Python: here it becomes one of nothing, so
that no command ends with an error after its work. Standard output stays: `consume` has to know.
"""

from __future__ import annotations

import os
import sys


def run() -> None:
    """Load the command line and run it."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - open as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        from anabranch.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("\nAborted!\n")
        sys.exit(1)


if __name__ == "__main__":
    run()
