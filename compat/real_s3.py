"""Diskless storage on a real S3 server: the stores' common suite, and brokers over diskless topics.

What: versitygw, built once by Go's module client, on a folder of this machine; against it the tests
of `tests/stores/objects/test_objects.py` that need S3 and those of
`tests/server/diskless/test_cloud_cluster.py`, which elsewhere run against moto's server; brokers
with a coordinator in SQLite, and in PostgreSQL. Then the gateway is killed and started again: what
was stored is there. Why not a row of the table: Apache Kafka has nothing to compare it with.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from bench.servers import ROOT, free_port

from anabranch.stores.objects.engines import open_objects
from compat.clients import CACHE, fetch_versitygw

FOLDER = ROOT / ".cache" / "compat" / f"s3-{os.getpid()}"
KEYS = ("an-id", "hush-hush-hush")
BUCKET, REGION = "bucket", "us-east-1"
START_SECONDS = 30.0
SUITES = {
    "tests/stores/objects/test_objects.py": "s3",
    "tests/server/diskless/test_garbage_collector.py": "s3",
    "tests/server/diskless/test_cloud_cluster.py": "s3",
}
"""Files of tests, and which of them."""


class Gateway:
    """One versitygw on loopback, whose buckets are folders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / BUCKET).mkdir(parents=True)
        self.address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where S3's requests go."""
        return f"http://{self.address}"

    def start(self) -> None:
        """Start it, and wait for its port."""
        access, secret = KEYS
        program = CACHE / "versitygw" / "versitygw"
        words = ["--access", access, "--secret", secret, "--region", REGION, "--quiet"]
        self._process = subprocess.Popen(
            [program, *words, "--port", self.address, "posix", str(self._folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        host, _, port = self.address.partition(":")
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(OSError):
                socket.create_connection((host, int(port)), 1.0).close()
                return
            time.sleep(0.05)
        raise SystemExit("versitygw did not start")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


async def put_and_read(gateway: Gateway, *, is_new: bool) -> bool:
    """Whether an object is what was put, by this life of the gateway or by the one before."""
    access, secret = KEYS
    store = await open_objects(
        f"s3://{BUCKET}/restarted?endpoint={gateway.endpoint}&region={REGION}"
        f"&access_key_id={access}&secret_access_key={secret}"
    )
    if is_new:
        await store.put("kept", [b"one ", b"object"])
    [held] = await store.read("kept", [(4, 6)])
    await store.close()
    return bytes(held) == b"object"


def suites(gateway: Gateway) -> bool:
    """Whether all tests pass."""
    environment = {**os.environ, "ANABRANCH_TEST_S3": gateway.endpoint}
    passes = True
    for path, chosen in SUITES.items():
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", path, "-k", chosen]
        passes &= not subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    return passes


def main() -> int:
    """0 when everything passes."""
    fetch_versitygw()
    gateway = Gateway(FOLDER)
    try:
        gateway.start()
        passes = suites(gateway) and asyncio.run(put_and_read(gateway, is_new=True))
        gateway.kill()
        gateway.start()
        passes &= asyncio.run(put_and_read(gateway, is_new=False))
    finally:
        gateway.kill()
        shutil.rmtree(FOLDER, ignore_errors=True)
    sys.stdout.write(f"diskless storage on a real S3 server {'passes' if passes else 'FAILS'}\n")
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
