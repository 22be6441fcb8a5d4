"""A store in a cloud that is away, busy, wrong or closed to us; the S3 dialect stands for all."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from contextlib import asynccontextmanager
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stores.objects.conftest import SECRET, s3_url
from tests.stores.objects.stored_kit import Pieces

from anabranch.core.diskless.objects import INCOMPLETE, ObjectMissing, ObjectsAway, ObjectTaken
from anabranch.core.diskless.writer import MOST_UPLOADS
from anabranch.core.errors import StorageFault
from anabranch.server.diskless import shell
from anabranch.stores.objects import cloud
from anabranch.stores.objects.cloud_faults import fault_of
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.existing_object import holds_large

KEY = "objects/3f/63"
PASS, LOSE = "pass", "lose the answer"


def port_of(server) -> int:
    return server.sockets[0].getsockname()[1]


def answer(status: int, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>no {SECRET}</Message></Error>".encode()
    return b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (
        status,
        len(body),
        body,
    )


class Between:
    """Stands before an S3 server and does one thing of a script for each request."""

    def __init__(self, endpoint: str) -> None:
        self.host, _, port = endpoint.removeprefix("http://").partition(":")
        self.port = int(port)
        self.script: list[str | bytes] = []
        self.requests: list[str] = []

    async def serve(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head.split(b" ", 1)[0].decode())
        lengths = [
            line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        ]
        body = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
        step = self.script.pop(0) if self.script else PASS
        if isinstance(step, bytes):
            writer.write(step)
        else:
            given = await self.forward(head, body)
            if step == PASS:
                writer.write(given)
        writer.close()

    async def forward(self, head: bytes, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        first, _, rest = head.partition(b"\r\n")
        writer.write(first + b"\r\nConnection: close\r\n" + rest + body)
        given = await reader.read()
        writer.close()
        return given


@pytest.fixture
async def between(s3, monkeypatch):
    monkeypatch.setattr(cloud, "FIRST_PAUSE_S", 0.01)
    between = Between(s3)
    server = await asyncio.start_server(between.serve, "127.0.0.1", 0)
    between.url = s3_url(f"http://127.0.0.1:{port_of(server)}")
    yield between
    server.close()


@pytest.fixture
async def store(between):
    return await open_objects(between.url)


@given(st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 100_000))))
def test_ranges_are_read_in_few_spans(ranges):
    spans = cloud.joined(ranges)
    for position, length in ranges:
        held = [start for start, end in spans if start <= position and position + length <= end]
        assert len(held) == 1 or not length
    assert all(after[0] - before[1] > cloud.NEAR_BYTES for before, after in pairwise(spans))


async def test_a_busy_store_is_asked_again(store, between):
    between.script = [answer(503, "SlowDown"), answer(500, "InternalError")]
    await store.put(KEY, [b"bytes"])
    between.script = [answer(503, "SlowDown")]
    assert (await store.read(KEY, [(1, 2)]))[0] == b"yt"


async def test_a_store_that_stays_busy_is_away_after_bounded_attempts(store, between):
    between.script = [answer(503, "SlowDown")] * 99
    for call, attempts in (
        (store.put(KEY, [b"x"]), cloud.PUT_ATTEMPTS),
        (store.read(KEY, [(0, 1)]), 1 + cloud.READ_RETRIES),
    ):
        between.requests.clear()
        with pytest.raises(ObjectsAway, match="503"):
            await call
        assert len(between.requests) == attempts


async def test_a_put_whose_answer_was_lost_is_not_taken_for_another_s(store, between):
    between.script = [LOSE]
    await store.put(KEY, [b"by", b"tes"])
    assert between.requests[:2] == ["PUT", "PUT"]
    assert (await store.read(KEY, [(0, 5)]))[0] == b"bytes"


@pytest.mark.parametrize("held", [b"other", b"longer than that"])
async def test_a_put_tried_again_does_not_take_another_s_object_for_its_own(store, between, held):
    await store.put(KEY, [held])
    between.script = [answer(503, "SlowDown")]
    with pytest.raises(ObjectTaken):
        await store.put(KEY, [b"bytes"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (answer(403, "AccessDenied"), "403 AccessDenied.*check the keys"),
        (answer(401, "Unauthorized"), "check the keys"),
        (answer(301, "PermanentRedirect"), "region and endpoint"),
        (answer(400, "AuthorizationHeaderMalformed"), "region and endpoint"),
        (answer(405, "MethodNotAllowed"), "is an object store"),
        (answer(404, "NoSuchBucket"), "no such bucket"),
        (answer(400, "ExpiredToken"), "400 ExpiredToken.*have expired; give new ones"),
        (answer(400, "TokenRefreshRequired"), "have expired; give new ones"),
        (answer(403, "ExpiredToken"), "have expired; give new ones"),
        (answer(400, "InvalidToken"), "check the keys"),
        (answer(403, "RequestTimeTooSkewed"), "set the clock of this machine"),
    ],
)
async def test_what_only_a_person_can_mend_is_said_at_once_with_a_remedy(
    store, between, given, said
):
    between.script = [answer(404, "NoSuchKey"), *[given] * 9]
    with pytest.raises(StorageFault, match=said) as raised:
        await store.check("cluster")
    assert not isinstance(raised.value, ObjectsAway)
    assert SECRET not in str(raised.value)


async def test_a_missing_bucket_is_said_before_the_first_object(s3):
    store = await open_objects(s3_url(s3, "no-such-bucket"))
    with pytest.raises(
        StorageFault, match=r"s3://no-such-bucket/.*no such bucket.*create it"
    ) as raised:
        await store.check("cluster")
    assert not isinstance(raised.value, ObjectMissing)


@pytest.fixture
def nobody():
    """A port on which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def test_an_unreachable_store_is_away_and_no_secret_is_told(monkeypatch, nobody, caplog):
    monkeypatch.setattr(cloud, "FIRST_PAUSE_S", 0.01)
    store = await open_objects(s3_url(f"http://127.0.0.1:{nobody}"))
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(ObjectsAway, match=r"refused.*endpoint") as raised,
    ):
        await store.check("cluster")
    assert SECRET not in f"{raised.value!r} {raised.value.__cause__!r} {store.url} {caplog.text}"


async def test_a_store_that_never_answers_is_away(monkeypatch, nobody):
    async def silent(reader, writer):
        await reader.read()
        writer.close()

    monkeypatch.setattr(cloud, "PATIENCE_S", 0.1)
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    store = await open_objects(s3_url(f"http://127.0.0.1:{port_of(server)}"))
    with pytest.raises(ObjectsAway, match=r"no answer for 0\.1 s"):
        await store.size(KEY)
    server.close()


async def test_a_put_may_take_longer_than_other_requests(s3, monkeypatch):
    """Objects that are put side by side share what a slow store takes."""

    async def slow(reader, writer):
        host, _, port = s3.removeprefix("http://").partition(":")
        inner, outer = await asyncio.open_connection(host, int(port))

        async def back():
            while piece := await inner.read(1 << 16):
                writer.write(piece)

        answers = asyncio.create_task(back())
        while piece := await reader.read(1 << 16):
            await asyncio.sleep(len(piece) / 1_000_000)
            outer.write(piece)
        answers.cancel()
        outer.close()
        writer.close()

    monkeypatch.setattr(cloud, "ATTEMPT_S", 0.3)
    server = await asyncio.start_server(slow, "127.0.0.1", 0, limit=1 << 16)
    store = await open_objects(s3_url(f"http://127.0.0.1:{port_of(server)}"))
    await store.put(KEY, [bytes(600_000)])
    server.close()


def test_a_full_broker_at_two_megabytes_a_second_ends_its_puts_in_time():
    full_bytes = MOST_UPLOADS * (8 << 20)
    assert full_bytes / 2_000_000 <= cloud.PUT_ATTEMPT_S <= shell.CALL_SECONDS


def test_an_option_that_a_cloud_does_not_have_is_not_named():
    problem = Exception("Server returned error status code: 400 Bad Request")
    assert "region" in str(fault_of(problem, "s3://bucket", "storing", is_put=True))
    assert "region" not in str(fault_of(problem, "gs://bucket", "storing", is_put=True))


@asynccontextmanager
async def taking_puts(asked):
    """The URL of a store that takes every put of one byte."""

    async def answer(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(1)
        writer.write(b"HTTP/1.1 200 OK\r\nETag: one\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{port_of(server)}"
    yield f"gs://bucket/p?base_url={address}&bearer_token={SECRET}"
    server.close()


PUT_AND_EXIT = """
import asyncio, sys
from anabranch.stores.objects.engines import open_objects
async def main():
    store = await open_objects(sys.argv[1])
    await store.put("key", [b"x"])
    await store.close()
asyncio.run(main())
"""


async def test_a_process_that_ends_with_an_answer_ends_in_order():
    """Without a pause at its end, a third of them abort."""

    async def ended(url):
        command = [sys.executable, "-c", PUT_AND_EXIT, url]
        return await (await asyncio.create_subprocess_exec(*command)).wait()

    async with taking_puts([]) as url:
        for _ in range(6):
            assert await asyncio.gather(ended(url), ended(url)) == [0, 0]


async def test_an_address_of_googles_store_is_used_without_encryption_where_it_says_so():
    asked = []
    async with taking_puts(asked) as url:
        await (await open_objects(url)).put("key", [b"x"])
    assert asked[0].startswith(b"PUT /bucket/p%2Fkey ")
    assert b"\r\nx-goog-if-generation-match: 0\r\n" in asked[0]


def test_where_no_keys_are_found_the_sentence_names_those_of_the_store():
    problem = Exception("error sending request for url (http://metadata.google.internal/)")
    said = str(fault_of(problem, "gs://bucket", "storing", is_put=True))
    assert "no keys were found" in said and "GOOGLE_SERVICE_ACCOUNT for gs://" in said


async def test_many_objects_are_deleted_and_listed_in_pages(s3, monkeypatch):
    monkeypatch.setattr(cloud, "LIST_PAGE", 10)
    monkeypatch.setattr(cloud, "DELETE_AT_ONCE", 10)
    store = await open_objects(s3_url(s3))
    keys = [f"objects/{number:04d}" for number in range(25)]
    await asyncio.gather(*(store.put(key, [b"x"]) for key in keys))
    pages = [[each.key for each in page] async for page in store.list("objects/")]
    assert [len(page) for page in pages] == [10, 10, 5] and [*chain(*pages)] == keys
    assert await store.delete(keys) == keys
    assert [page async for page in store.list("")] == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        (f"s3://id:{SECRET}@bucket/prefix", "names no bucket"),
        (f"s3://bucket/prefix?no_such_option={SECRET}", "not valid.*no_such_option"),
        (f"az://container?account_key={SECRET}", "not valid.*account_key"),
        (f"gs://bucket?service_account_key={SECRET}", "not valid.*service_account_key"),
    ],
)
async def test_a_wrong_url_is_refused_without_its_secrets(url, said):
    with pytest.raises(StorageFault, match=said) as raised:
        await open_objects(url)
    assert SECRET not in str(raised.value)


async def test_keys_that_only_the_environment_names_wrongly_are_looked_for_there(monkeypatch):
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "/none")
    with pytest.raises(StorageFault, match=r"there are none.*environment"):
        await open_objects("gs://bucket/prefix")


async def test_stores_of_other_clouds_open(tmp_path):
    key = "bm90IGEga2V5"
    store = await open_objects(f"az://container/prefix?account_name=one&account_key={key}")
    assert store.url == "az://container/prefix"
    store = await open_objects("gs://bucket/prefix?skip_signature=true")
    assert store.url == "gs://bucket/prefix"


LARGE = Pieces(*[bytes([number]) * (2 << 20) for number in range(9)])


async def incomplete(store) -> list[str]:
    listed = [each.key async for page in store.list("") for each in page]
    return [key for key in listed if INCOMPLETE in key]


@pytest.mark.parametrize("lost", range(9))
async def test_a_large_put_of_which_an_answer_is_lost_is_whole_or_is_not(store, between, lost):
    """Whichever of its requests it is: the upload is begun, parts, its end, the copy, the end."""
    between.script = [PASS] * lost + [LOSE]
    try:
        await store.put_large(KEY, LARGE)
    except StorageFault:
        await store.put_large(KEY, LARGE)
    assert await store.size(KEY) == LARGE.byte_size
    assert await holds_large(store, KEY, LARGE)
    await store.delete(await incomplete(store))


async def test_a_large_put_takes_no_object_of_another_for_its_own(store, between):
    await store.put(KEY, [b"\xff" * LARGE.byte_size])
    with pytest.raises(ObjectTaken):
        await store.put_large(KEY, LARGE)
    assert await incomplete(store) == []


async def test_a_large_put_to_a_store_that_is_busy_ends_and_leaves_nothing(store, between):
    between.script = [PASS, *[answer(503, "SlowDown")] * 99]
    with pytest.raises(ObjectsAway, match="503"):
        await store.put_large(KEY, LARGE)
    between.script = []
    with pytest.raises(ObjectMissing):
        await store.size(KEY)
    assert await incomplete(store) == []
