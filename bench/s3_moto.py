"""moto's S3 server with one bucket, in threads of this process.

What: the server that tests, chaos and benchmarks use. Rule kept: of several puts with
`If-None-Match: *` of one name, one succeeds, as S3 guarantees (Amazon S3 User Guide, "Conditional
writes"). moto by itself looks for the object and stores the new one in two steps, between which
another thread's put gets in; both then succeed. The lock is taken when a put's body has come, so
that a slow sender holds up no other one. Not here: links that fail (`slow_link`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

from bench.s3_server import BUCKET, LOCAL
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
from moto.s3.responses import S3Response

START_SECONDS = 60.0
"""A run gives way to others on its machine."""
_LOCK = threading.Lock()
_put_object = S3Response.put_object


def _put_alone(response: S3Response) -> Any:
    with _LOCK:
        return _put_object(response)


@contextmanager
def s3_endpoint(host: str = LOCAL, port: int = 0) -> Iterator[str]:
    """The URL of a server with an empty bucket, until the end of the block."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    S3Response.put_object = _put_alone  # type: ignore[method-assign]
    server = ThreadedMotoServer(ip_address=host, port=port, verbose=False)
    server.start()
    try:
        endpoint = f"http://{host}:{server.get_host_and_port()[1]}"
        with urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT"), timeout=START_SECONDS):
            pass
        yield endpoint
    finally:
        server.stop()
