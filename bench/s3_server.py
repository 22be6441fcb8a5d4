"""An S3 server behind a link that can fail, in a process of its own: the side that starts it.

What: `S3Server` starts `s3_process` and sends it conditions of the link. Rule kept: objects lie in
memory, so that a server that has ended leaves nothing. Not here: the server (`s3_process`), which
condition when (`chaos/objects.py`, the benchmarks).
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from bench.slow_link import Condition

ROOT = Path(__file__).resolve().parents[1]
BUCKET = "bucket"
LOCAL = "127.0.0.1"


class S3Server:
    """The server as a process, at an address of this machine or of a host of its own."""

    def __init__(self, host: str = LOCAL, prefix: tuple[str, ...] = ()) -> None:
        self._lock = threading.Lock()
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "bench.s3_process", host],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        try:
            self.endpoint = f"http://{host}:{self._answer()['port']}"
        except BaseException:
            self.stop()
            raise

    def url(self, folder: str) -> str:
        """What nodes are told."""
        return (
            f"s3://{BUCKET}/{folder}?endpoint={self.endpoint}&region=us-east-1"
            "&access_key_id=id&secret_access_key=key"
        )

    def become(self, condition: Condition) -> None:
        """From now on the link is like this."""
        with self._lock:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(condition._asdict()) + "\n")
            self.process.stdin.flush()
            self._answer()

    def stop(self) -> None:
        """End the process; what it held is gone."""
        for end in (self.process.stdin, self.process.stdout):
            assert end is not None
            with contextlib.suppress(OSError):
                end.close()
        self.process.kill()
        self.process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise OSError("the S3 server ended")
        return dict(json.loads(line))
