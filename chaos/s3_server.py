"""`python -m chaos.s3_server HOST`: an S3 server behind a link that can fail, in a process.

What: moto's server, which the tests use too, with one bucket; before it a `SlowLink`. The first
line on standard output is the port as JSON; each line on standard input is a condition of the link,
as JSON, answered by a line once it holds. Rules kept: objects lie in memory; the process ends when
its standard input does, so that it never outlives who started it. `S3Server` is that one's side.
Not here: which condition when (`faults_diskless`, the benchmark).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from chaos.slow_link import WELL, Condition, SlowLink

ROOT = Path(__file__).resolve().parents[1]
BUCKET = "bucket"
LOCAL = "127.0.0.1"
START_SECONDS = 60.0
"""A run gives way to others on its machine."""


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
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address=host, port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    await asyncio.to_thread(_make_bucket, f"http://{host}:{port}")
    link = SlowLink(int(port), host)
    await link.start()
    _say({"port": link.port})
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        link.become(WELL._replace(**json.loads(line)))
        _say({})


def _make_bucket(endpoint: str) -> None:
    with urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=START_SECONDS):
        pass


def _say(answer: dict[str, int]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
