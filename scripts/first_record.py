"""Starts the installed package, writes a record and reads it back: what `make release` tries."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from anabranch.testing import LocalCluster


def main() -> int:
    """0 when the record comes back."""
    with tempfile.TemporaryDirectory() as folder, LocalCluster(folder=folder) as cluster:
        cluster.create_topic("first")
        command = [sys.executable, "-m", "anabranch"]
        at = ["--bootstrap-server", cluster.bootstrap_servers]
        subprocess.run([*command, "produce", "first", *at], input=b"hello\n", check=True)
        read = [*command, "consume", "first", *at, "--from-beginning", "--max-messages", "1"]
        said = subprocess.run(read, capture_output=True, check=True).stdout
    print(said.decode(), end="")
    return 0 if said == b"hello\n" else 1


if __name__ == "__main__":
    sys.exit(main())
