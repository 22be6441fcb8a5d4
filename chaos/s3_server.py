"""`python -m chaos.s3_server HOST`: an S3 server behind a link that can fail, in a process.

What: the server of `s3_moto`, which the tests use too; before it a `SlowLink`. The first
line on standard output is the port as JSON; each line on standard input is a condition of the link,
as JSON, answered by a line once it holds. Rules kept: objects lie in memory; the process ends when
its standard input does, so that it never outlives who started it. `S3Server` is that one's side.
Not here: which condition when (`faults_diskless`, the benchmark).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from chaos.slow_link import WELL, Condition, SlowLink

ROOT = Path(__file__).resolve().parents[1]
BUCKET = "bucket"
LOCAL = "127.0.0.1"


class S3Server:
    """The server as a process, at an address of this machine or of a host of its own."""

    def __init__(self, host: str = LOCAL, prefix: tuple[str, ...] = ()) -> None:
        self._lock = threading.Lock()
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "chaos.s3_server", host],
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


async def serve(host: str) -> None:
    """Until standard input ends."""
    from chaos.s3_moto import s3_endpoint

    with s3_endpoint(host) as endpoint:
        link = SlowLink(int(endpoint.rpartition(":")[2]), host)
        await link.start()
        _say({"port": link.port})
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := await reader.readline():
            link.become(WELL._replace(**json.loads(line)))
            _say({})


def _say(answer: dict[str, int]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
