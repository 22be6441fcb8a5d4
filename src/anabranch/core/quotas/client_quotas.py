"""What clients used of their quotas, and how long one that used too much has to rest.

What: produce and fetch bytes, the time of the node's loop in per cent, and partitions that are
created or deleted, each for the user, the client id or both that a quota names. Rules kept, as in
Kafka: what went over the quota is answered at once and counted, and its connection rests until the
rate is at the limit; for its time alone a client rests for one sample at most. Usage of entities
without a quota is not kept; of others it is forgotten after an hour, or sooner where there are too
many: who comes with a new name each time is bounded in memory, not in rate. Sources: KIP-13,
KIP-55, KIP-124, KIP-219, KIP-599. Not here: connections (`gate`, `connection_rates.py`).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from immutables import Map

from anabranch.core.broker.gate import Charge
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.quotas.limits import QuotasByEntity, limit_of
from anabranch.core.quotas.rates import SECOND_MS, Rate, TokenBucket, Window

if TYPE_CHECKING:
    from anabranch.core.access.principal import Principal
    from anabranch.core.request import Request
    from anabranch.core.settings.broker import BrokerConfig

IDLE_MS = 3_600_000
"""After which usage is forgotten, as in Kafka."""

MOST_SERIES = 1_000
"""Users and client ids in metrics: those that were used last."""

REST_WINDOW = Window(2, 30 * SECOND_MS)
"""Over which rests are averaged in metrics, as in Kafka."""

MOST_USAGES = 20_000
"""Users and client ids whose usage is kept: a kilobyte each."""

LONGEST_NAME = 200
"""Letters of a user or client id that is kept as it is: a client names itself in up to 32 KB."""

M = TypeVar("M", Rate, TokenBucket)


def short(name: str) -> str:
    """A name as usage is kept by it: a long one by its begin and its digest."""
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{name[: LONGEST_NAME - len(digest) - 1]}…{digest}"


class Usage(Generic[M]):
    """What one user, client id or both used of one quota."""

    __slots__ = ("_rested", "_rests", "measure", "used_ms")

    def __init__(self, measure: M) -> None:
        self.measure: M = measure
        self.used_ms = 0
        self._rested, self._rests = Rate(), Rate()

    def rest(self, rest_ms: int, now_ms: int) -> int:
        """Note how long it has to rest."""
        if rest_ms > 0:
            self._rested.record(rest_ms, now_ms, REST_WINDOW)
            self._rests.record(1, now_ms, REST_WINDOW)
        return rest_ms

    def mean_rest_ms(self, now_ms: int) -> float:
        """The mean of its rests of late; 0 without any."""
        rested, _ = self._rested.measure(now_ms, REST_WINDOW)
        rests, _ = self._rests.measure(now_ms, REST_WINDOW)
        return rested / rests if rests else 0.0


class Series(NamedTuple):
    """A usage in metrics."""

    charge: Charge
    user: str
    client_id: str
    used: float
    """A second: bytes, or per cent of the loop's time; of mutations the tokens that are left."""
    throttle_time_ms: float
    """How long it was told to rest of late, in the mean."""


class ClientQuotas:
    """The quotas of one role of a node."""

    def __init__(self, config: BrokerConfig, most_usages: int = MOST_USAGES) -> None:
        self.window = Window(config.quota_window_num, config.quota_window_size_seconds * SECOND_MS)
        self._mutations = Window(
            config.controller_quota_window_num,
            config.controller_quota_window_size_seconds * SECOND_MS,
        )
        self._most = most_usages
        self._quotas: QuotasByEntity = Map()
        self._rates: OrderedDict[tuple[Charge, str, str], Usage[Rate]] = OrderedDict()
        self._buckets: OrderedDict[tuple[Charge, str, str], Usage[TokenBucket]] = OrderedDict()

    def follow(self, quotas: QuotasByEntity) -> bool:
        """Take the quotas of the image; whether there are any."""
        self._quotas = quotas
        return bool(quotas)

    def charge(
        self, principal: Principal, client_id: str | None, kind: Charge, amount: float, now_ms: int
    ) -> int:
        """Count bytes, or per cent of a second, and tell how long the client has to rest."""
        limit = limit_of(self._quotas, kind.value, principal.name, client_id or "")
        if limit is None:
            return 0
        usage = self._rate(kind, limit.user, limit.client_id, now_ms)
        usage.measure.record(amount, now_ms, self.window)
        rest_ms = usage.measure.rest_ms(limit.value, now_ms, self.window)
        if kind is Charge.REQUEST:
            rest_ms = min(rest_ms, self.window.sample_ms)
        return usage.rest(rest_ms, now_ms)

    def take_back(
        self, principal: Principal, client_id: str | None, kind: Charge, amount: float, now_ms: int
    ) -> bool:
        """Count no more what was counted last, since it is not sent. False where nothing else was
        counted in the window: waiting would not make it fit, so it has to be sent. Kafka would
        never send it."""
        limit = limit_of(self._quotas, kind.value, principal.name, client_id or "")
        if limit is None:
            return True
        measure = self._rate(kind, limit.user, limit.client_id, now_ms).measure
        if measure.total <= amount and amount > self.most_bytes(principal, client_id):
            return False
        measure.record(-amount, now_ms, self.window)
        return True

    def most_bytes(self, principal: Principal, client_id: str | None) -> float:
        """What one fetch may bring at most: more would be over the quota by itself."""
        limit = limit_of(self._quotas, Charge.FETCH.value, principal.name, client_id or "")
        return float("inf") if limit is None else limit.value * self.window.full_ms / SECOND_MS

    def mutation(self, request: Request, now_ms: int, *, strict_since: int) -> MutationQuota | None:
        """What limits the partitions that a request creates or deletes; None if nothing does."""
        user, client_id = request.principal.name, request.client_id or ""
        limit = limit_of(self._quotas, Charge.MUTATION.value, user, client_id)
        if limit is None:
            return None
        key = (Charge.MUTATION, short(limit.user), short(limit.client_id))
        usage = self._buckets.get(key)
        if usage is None:
            usage = self._buckets[key] = Usage(TokenBucket())
        _note(self._buckets, key, usage, now_ms, self._most)
        usage.measure.rest_ms(limit.value, now_ms, self._mutations)
        is_strict = request.version >= strict_since
        return MutationQuota(usage, limit.value, self._mutations, now_ms, is_strict=is_strict)

    def _rate(self, kind: Charge, user: str, client_id: str, now_ms: int) -> Usage[Rate]:
        key = (kind, short(user), short(client_id))
        usage = self._rates.get(key)
        if usage is None:
            usage = self._rates[key] = Usage(Rate())
        _note(self._rates, key, usage, now_ms, self._most)
        return usage

    def series(self, now_ms: int) -> Iterator[Series]:
        """What metrics tell."""
        for (kind, user, client_id), rate in islice(reversed(self._rates.items()), MOST_SERIES):
            used, _ = rate.measure.measure(now_ms, self.window)
            yield Series(kind, user, client_id, used, rate.mean_rest_ms(now_ms))
        for (kind, user, client_id), each in islice(reversed(self._buckets.items()), MOST_SERIES):
            yield Series(kind, user, client_id, each.measure.tokens, each.mean_rest_ms(now_ms))


def _note(
    usages: OrderedDict[tuple[Charge, str, str], Usage[M]],
    key: tuple[Charge, str, str],
    usage: Usage[M],
    now_ms: int,
    most: int,
) -> None:
    """It is used: forget those that were not for long, or were longest not if there are too many.
    Two at most, so that no request pays for many."""
    usage.used_ms = now_ms
    usages.move_to_end(key)
    for _ in range(2):
        oldest, idle = next(iter(usages.items()))
        if len(usages) <= most and now_ms - idle.used_ms < IDLE_MS:
            break
        del usages[oldest]


class MutationQuota:
    """What limits one request. A strict one refuses what comes while tokens are overdrawn; others
    are of older versions, whose clients know no such error: they only rest."""

    __slots__ = ("_bucket", "_is_strict", "_limit", "_now_ms", "_window", "rest_ms")

    def __init__(
        self, bucket: Usage[TokenBucket] | None, limit: float, window: Window, now_ms: int, *,
        is_strict: bool,
    ) -> None:  # fmt: skip
        self._bucket = bucket
        self._limit = limit
        self._window = window
        self._now_ms = now_ms
        self._is_strict = is_strict
        self.rest_ms = 0
        """How long the client has to rest."""

    def take(self, partitions: int) -> None:
        """Count partitions. Raises THROTTLING_QUOTA_EXCEEDED, and counts nothing then."""
        if self._bucket is None:
            return
        bucket, where = self._bucket.measure, (self._limit, self._now_ms, self._window)
        if self._is_strict and (rest_ms := bucket.rest_ms(*where)):
            self._rest(rest_ms)
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        bucket.take(partitions, *where)
        if not self._is_strict:
            self._rest(bucket.rest_ms(*where))

    def _rest(self, rest_ms: int) -> None:
        if self._bucket is not None and rest_ms and not self.rest_ms:
            self._bucket.rest(rest_ms, self._now_ms)
        self.rest_ms = rest_ms


UNLIMITED = MutationQuota(None, float("inf"), Window(1, SECOND_MS), 0, is_strict=False)
