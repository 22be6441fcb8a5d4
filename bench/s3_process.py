"""`python -m bench.s3_process HOST`: an S3 server behind a link that can fail.

What: the server of `s3_moto`, which the tests use too; before it a `SlowLink`. The first line on
standard output is the port as JSON; each line on standard input is a condition of the link, as
JSON, answered by a line once it holds. Rule kept: the process ends when its standard input does, so
that it never outlives what started it (`s3_server`).
"""

from __future__ import annotations

import asyncio
import json
import sys

from bench.s3_moto import s3_endpoint
from bench.slow_link import WELL, SlowLink


async def serve(host: str) -> None:
    """Until standard input ends."""
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
