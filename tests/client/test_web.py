"""One request to a web address: it ends, and what is told of it has no secret."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
from compat.token_provider import Provider

from anabranch.client.web import Ask, FetchFault, fetch, shown

SECRET = "hunter2secret"
SECONDS = 6


@pytest.fixture
def dripping():
    """Gives an address that says something, and more of the same for ever."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def at(begin, more):
            threading.Thread(target=_drip, args=(listening, begin, more, over), daemon=True).start()
            return f"http://127.0.0.1:{listening.getsockname()[1]}/"

        yield at
        over.set()


def _drip(listening, begin, more, over):
    with listening.accept()[0] as taken, contextlib.suppress(OSError):
        taken.sendall(begin)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and not over.wait(0.05):
            taken.sendall(more)


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n{", b" "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nA: ", b"b"),
        (b"H", b"T"),
    ],
)
def test_an_answer_that_never_ends_costs_its_time_alone(dripping, begin, more):
    """Each wait for bytes is short: keys would stay as they are for good, and hold a thread."""
    ask = Ask(dripping(begin, more), read_seconds=0.5)
    began = time.monotonic()
    why = ""
    try:
        fetch(ask)
    except FetchFault as fault:
        why = str(fault)
    assert time.monotonic() - began < SECONDS / 2 and "timed out" in why


def test_an_answer_in_pieces_is_read_whole(dripping):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
    assert fetch(Ask(dripping(head, b"1"), read_seconds=SECONDS)) == b"1111"


@pytest.mark.parametrize(
    "url",
    [
        f"https://[x/?{SECRET}", f"https://idp:y:x/?{SECRET}", f"http://127.0.0.1:1/?{SECRET}",
        f"http://a:{SECRET}@127.0.0.1:1/#{SECRET}", f"http://127.0.0.1:1/a b?{SECRET}",
        f"http://127.0.0.1:1/?a b{SECRET}", f"http://127.0.0.1:1/?\u00e9{SECRET}",
        f"http:///?{SECRET}", f"ftp://idp/?{SECRET}", f"file:///missing?{SECRET}", f"?{SECRET}",
        f"http://127.0.0.1:1?{SECRET}/@", f"http://a:{SECRET}@127.0.0.1:x/",
    ],
)  # fmt: skip
def test_what_follows_in_an_address_is_not_repeated(url):
    with pytest.raises(FetchFault) as refused:
        fetch(Ask(url, connect_seconds=1, read_seconds=1))
    told = str(refused.value)
    assert told.startswith(shown(url)) and SECRET not in told


def test_a_secret_of_an_address_that_answers_badly_is_not_repeated():
    at = Provider()
    try:
        at.status = 403
        with pytest.raises(FetchFault, match="403") as refused:
            fetch(Ask(f"{at.url}/?{SECRET}"))
        assert SECRET not in str(refused.value) and not refused.value.is_temporary
    finally:
        at.stop()
