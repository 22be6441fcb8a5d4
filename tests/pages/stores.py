"""`python -m tests.pages.stores`: the stores that pages take for granted, until Ctrl-C.

`postgres` is a server whose URL is in the file `postgres.url`; `s3 PORT BUCKET` is moto's server
of S3 on this port, with this bucket. Both listen on loopback only.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from tests.stores.postgres_kit import PostgresServer


@contextmanager
def postgres() -> Iterator[None]:
    """A PostgreSQL with an empty database."""
    server = PostgresServer().start()
    try:
        Path("postgres.url").write_text(server.new_database())
        yield
    finally:
        server.remove()


@contextmanager
def s3(port: str, bucket: str) -> Iterator[None]:
    """An S3 server with an empty bucket."""
    from bench.s3_moto import s3_endpoint

    with s3_endpoint(port=int(port)) as endpoint:
        urlopen(Request(f"{endpoint}/{bucket}", method="PUT")).close()
        yield


def main(kind: str, *words: str) -> None:
    """Serve until Ctrl-C."""
    with {"postgres": postgres, "s3": s3}[kind](*words):
        print("ready", flush=True)  # noqa: T201
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main(*sys.argv[1:])
