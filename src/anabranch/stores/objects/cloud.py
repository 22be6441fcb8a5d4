"""`s3://`, `gs://` and `az://`: objects in a cloud's store, through obstore.

What: create-only puts, reads of ranges, listings and bulk deletions. Options in the URL are
obstore's (`s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=…`); keys also come from the
cloud's usual environment variables. Rules kept: every attempt ends within PATIENCE_S; no secret is
in a sentence. Not here: whether the store is this cluster's
(`store_check.py`); what the library's errors mean (`cloud_faults.py`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from anabranch.core.diskless.claim import SETTING
from anabranch.core.diskless.objects import (
    INCOMPLETE,
    Listed,
    ObjectMissing,
    ObjectsAway,
    ObjectTaken,
    Source,
)
from anabranch.core.errors import Bug, StorageFault
from anabranch.core.settings.setting import is_true
from anabranch.core.types import Buffer
from anabranch.stores.objects.cloud_faults import PastEnd, fault_of
from anabranch.stores.objects.existing_object import holds, holds_large, whole
from anabranch.stores.objects.keys import check_key, short_object, shown
from anabranch.stores.objects.store_check import check_store

PATIENCE_S = 30.0
"""For one call with the library's retries; producers wait about as long."""
ATTEMPT_S = 10.0
"""For one request."""
PUT_ATTEMPT_S = 27.0
"""For one put: a broker's six objects of 8 MiB, side by side, at 2 MB/s. When it is shorter than
they take, all of them end late, are put again, and take the room of those that come next."""
CONNECT_S = 3.0
PUT_ATTEMPTS = 3
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
READ_RETRIES = 3
SMALL_BYTES = 16 << 20
"""A large object of at most so many bytes is one request, as any other."""
PART_BYTES = 8 << 20
PARTS_AT_ONCE = 2
"""Of one object: with the piece that is read meanwhile, some 32 MiB of memory."""
UPLOAD_S = 3600.0
"""For all parts of a large object: each request has a time of its own, and whoever gives the pieces
says when it takes too long."""
COPY_S = 60.0
"""For the store to give a large object its name, in all attempts together."""
NEAR_BYTES = 64 << 10
"""A request costs as much time as so many bytes in between."""
LIST_PAGE = 1000
DELETE_AT_ONCE = 1000
"""As many as S3 takes in one request."""
_STORES: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_ENDPOINTS = ("endpoint", "base_url")
"""Options that name a server: of S3 and Azure, and of Google."""
_CLIENT_OPTIONS = frozenset({"allow_http", "allow_invalid_certificates", "proxy_url"})
LEAVE_S = 0.2
"""Before the interpreter ends: a thread of the library that has just given an answer lets go of it
then. One that still needs the interpreter when that ends aborts the process, with exit code 134."""
_T = TypeVar("_T")
atexit.register(time.sleep, LEAVE_S)


def open_cloud(url: str, setting: str = SETTING) -> CloudStore:
    """The store of a URL, which is that of `setting`. Raises StorageFault when it is wrong; nothing
    is asked of it yet."""
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    bucket, _, prefix = place.partition("/")
    if not bucket or "@" in place:
        raise StorageFault(
            f"{setting}={shown(url)} names no bucket; write {scheme}://bucket/prefix, "
            "and keys as options or in the environment"
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    client = {name: options.pop(name) for name in _CLIENT_OPTIONS & options.keys()}
    without_encryption = any(options.get(name, "").startswith("http://") for name in _ENDPOINTS)
    client.setdefault("allow_http", str(without_encryption))
    try:
        if scheme == "s3":
            options.setdefault("copy_if_not_exists", "multipart")
        calls, puts, streams = (
            _STORES[scheme](
                bucket,
                prefix=prefix.strip("/") or None,
                client_options=_client_options(client, attempt_s),
                retry_config=_retries(most),
                **options,
            )
            for most, attempt_s in (
                (READ_RETRIES, ATTEMPT_S),
                (0, PUT_ATTEMPT_S),
                (READ_RETRIES, PUT_ATTEMPT_S),
            )
        )
    except (BaseError, ValueError, TypeError):
        raise StorageFault(
            f"{setting}={shown(url)}: its options are not valid "
            f"({', '.join(sorted(options)) or 'there are none'}), or what the environment says "
            f"of keys is not; obstore's documentation lists the options of {scheme}"
        ) from None
    return CloudStore(shown(url), calls, puts, streams, setting)


def _client_options(given: dict[str, str], attempt_s: float) -> dict[str, Any]:
    flags = {name: is_true(value) for name, value in given.items() if name != "proxy_url"}
    times = {
        "timeout": timedelta(seconds=attempt_s),
        "connect_timeout": timedelta(seconds=CONNECT_S),
    }
    return {**given, **flags, **times}


def _retries(most: int) -> dict[str, Any]:
    return {
        "max_retries": most,
        "retry_timeout": timedelta(seconds=PATIENCE_S),
        "backoff": {
            "init_backoff": timedelta(seconds=FIRST_PAUSE_S),
            "max_backoff": timedelta(seconds=LONGEST_PAUSE_S),
            "base": 2,
        },
    }


class CloudStore:
    """A bucket, and a prefix in it."""

    def __init__(
        self, url: str, calls: Any, puts: Any, streams: Any, setting: str = SETTING
    ) -> None:
        self.url = url
        self._setting = setting
        self._calls = calls
        self._puts = puts
        """The same without retries: those of puts are ours."""
        self._streams = streams
        """The same with time for parts of large objects."""

    async def _ask(
        self,
        what: str,
        call: Awaitable[_T],
        *,
        is_put: bool = False,
        patience_s: float | None = None,
    ) -> _T:
        patience_s = patience_s or PATIENCE_S
        try:
            async with asyncio.timeout(patience_s):  # wait_for may lose a cancellation
                return await call
        except TimeoutError:
            raise ObjectsAway(
                f"{self.url}: {what}: no answer for {patience_s:g} s; check the endpoint in "
                f"{self._setting} and the network"
            ) from None
        except (BaseError, OSError) as problem:
            raise fault_of(problem, self.url, what, is_put=is_put, setting=self._setting) from None

    async def put(self, key: str, buffers: Sequence[Buffer]) -> None:
        check_key(key, self.url)
        for attempt in range(1, PUT_ATTEMPTS + 1):
            try:
                await self._put(key, buffers)
                return
            except ObjectTaken:
                if await holds(self, key, buffers):
                    return
                raise
            except ObjectsAway:
                if attempt == PUT_ATTEMPTS:
                    raise
            await asyncio.sleep(FIRST_PAUSE_S * 2 ** (attempt - 1))

    async def _put(self, key: str, buffers: Sequence[Buffer]) -> None:
        given = [each for each in buffers if len(each)]
        call = obstore.put_async(self._puts, key, given, mode="create", use_multipart=False)
        await self._ask(f"storing object {key}", call, is_put=True)

    async def put_large(self, key: str, source: Source) -> None:
        """The library's uploads in parts replace what there is: the object is put under a name of
        its own first, and the store copies it to its name if there is none."""
        check_key(key, self.url)
        if source.byte_size <= SMALL_BYTES:
            await self.put(key, [bytes(piece) async for piece in whole(source)])
            return
        incomplete = f"{key}{INCOMPLETE}{uuid.uuid4().hex}"
        try:
            await self._upload(incomplete, source)
            copy = self._copy(incomplete, key)
            await self._ask(f"storing object {key}", copy, patience_s=COPY_S)
        except ObjectTaken:
            if not await holds_large(self, key, source):
                raise
        finally:
            with contextlib.suppress(StorageFault):  # else it goes with its object
                await self.delete([incomplete])

    async def _upload(self, key: str, source: Source) -> None:
        call = obstore.put_async(
            self._streams,
            key,
            _held(source),
            use_multipart=True,
            chunk_size=PART_BYTES,
            max_concurrency=PARTS_AT_ONCE,
        )
        await self._ask(f"storing object {key}", call, is_put=True, patience_s=UPLOAD_S)

    async def _copy(self, incomplete: str, key: str) -> None:
        for attempt in range(1, PUT_ATTEMPTS + 1):
            try:
                call = obstore.copy_async(self._streams, incomplete, key, overwrite=False)
                await self._ask(f"storing object {key}", call, patience_s=COPY_S)
                return
            except ObjectsAway:
                if attempt == PUT_ATTEMPTS:
                    raise
            await asyncio.sleep(FIRST_PAUSE_S * 2 ** (attempt - 1))

    async def read(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """Ranges that lie close together are one request."""
        check_key(key, self.url)
        spans = joined(ranges)
        if not spans:
            await self.size(key)
        parts = await asyncio.gather(*(self._span(key, *span) for span in spans))
        held = dict(zip(spans, parts))
        return [_cut(held, *each) for each in ranges]

    async def _span(self, key: str, start: int, end: int) -> memoryview:
        call = obstore.get_range_async(self._calls, key, start=start, end=end)
        try:
            part = memoryview(await self._ask(f"reading object {key}", call))
        except PastEnd:
            part = memoryview(b"")
        if len(part) != end - start:
            raise short_object(self.url, key, await self.size(key), start, end - start)
        return part

    async def size(self, key: str) -> int:
        check_key(key, self.url)
        found = await self._ask(f"looking for object {key}", obstore.head_async(self._calls, key))
        return found["size"]

    async def delete(self, keys: Sequence[str]) -> list[str]:
        for key in keys:
            check_key(key, self.url)
        for start in range(0, len(keys), DELETE_AT_ONCE):
            some = list(keys[start : start + DELETE_AT_ONCE])
            try:
                await self._delete(some)
            except ObjectMissing:  # GCS and Azure say so of any one, and stop
                for key in some:
                    await self._delete_one(key)
        return list(keys)

    async def _delete(self, keys: list[str]) -> None:
        await self._ask(f"deleting {len(keys)} objects", obstore.delete_async(self._calls, keys))

    async def _delete_one(self, key: str) -> None:
        with contextlib.suppress(ObjectMissing):
            await self._delete([key])

    async def list(self, prefix: str) -> AsyncIterator[list[Listed]]:
        folder = prefix.rpartition("/")[0] or None
        pages = obstore.list(self._calls, folder, chunk_size=LIST_PAGE)
        while page := await self._ask("listing objects", anext(pages, None)):
            found = [
                Listed(each["path"], each["size"], int(each["last_modified"].timestamp() * 1000))
                for each in page
                if each["path"].startswith(prefix)
            ]
            if found:
                yield found

    async def check(self, cluster_id: str) -> None:
        await check_store(self, cluster_id)

    async def close(self) -> None:
        """The library closes connections that are idle."""


async def _held(source: Source) -> AsyncIterator[bytes]:
    """Its pieces as the library may hold them: several parts are on their way at once."""
    async for piece in whole(source):
        yield bytes(piece)


def joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """(start, end) of the spans to read for some (position, length) ranges."""
    spans: list[tuple[int, int]] = []
    for position, length in sorted(ranges):
        if not length:
            continue
        start, end = position, position + length
        if spans and start - spans[-1][1] <= NEAR_BYTES:
            start, end = spans[-1][0], max(end, spans.pop()[1])
        spans.append((start, end))
    return spans


def _cut(held: dict[tuple[int, int], memoryview], position: int, length: int) -> Buffer:
    if not length:
        return b""
    for (start, end), part in held.items():
        if start <= position and position + length <= end:
            return part[position - start : position - start + length]
    raise Bug(f"no span has the bytes from {position} to {position + length}")
