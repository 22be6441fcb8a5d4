"""The command line's first step."""

from __future__ import annotations

import subprocess
import sys

INTERRUPTED = """
import runpy, sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "anabranch.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
runpy.run_module("anabranch", run_name="__main__")
"""


def test_ctrl_c_while_the_command_line_loads_is_one_word():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "\nAborted!\n")
