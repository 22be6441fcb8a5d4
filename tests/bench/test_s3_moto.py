"""The S3 server of tests and chaos gives a name to one put alone, as S3 does."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bench.s3_moto import s3_endpoint
from moto.s3.models import S3Backend

SECONDS = 10.0
TOGETHER_SECONDS = 0.5
"""How long a put that found no object waits for the other one to find none either."""


def status_of(url: str, body: bytes) -> int:
    create_only = {"If-None-Match": "*"}
    request = Request(url, data=body, headers=create_only, method="PUT")
    try:
        with urlopen(request, timeout=SECONDS) as answer:
            return answer.status
    except HTTPError as refused:
        return refused.code


def test_of_two_puts_that_both_look_before_either_stores_one_succeeds(monkeypatch):
    both_looked = threading.Barrier(2)
    store = S3Backend.put_object

    def store_when_both_looked(*given, **named):
        with suppress(threading.BrokenBarrierError):
            both_looked.wait(TOGETHER_SECONDS)
        return store(*given, **named)

    monkeypatch.setattr(S3Backend, "put_object", store_when_both_looked)
    with s3_endpoint() as endpoint, ThreadPoolExecutor(2) as threads:
        puts = [threads.submit(status_of, f"{endpoint}/bucket/k", each) for each in (b"a", b"b")]
        assert sorted(each.result() for each in puts) == [200, 412]
