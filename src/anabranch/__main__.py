"""The command line's first step: for the console script, and for `python -m anabranch`.

Why: loading the command line takes tenths of a second, in which Ctrl-C would end with a traceback.
"""

from __future__ import annotations

import sys


def run() -> None:
    """Load the command line and run it."""
    try:
        from anabranch.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.stderr.write("\nAborted!\n")
        sys.exit(1)


if __name__ == "__main__":
    run()
