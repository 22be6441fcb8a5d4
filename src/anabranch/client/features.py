"""Feature levels of a cluster: what is in use, what its brokers support, what may be raised.

What: a description asked of every broker, the plan of an upgrade, and the request that carries it
out. Rule kept: an upgrade goes no higher than the newest level that all brokers support; who keeps
it lower is named. The controller checks again, also those who are away. Source: KIP-584, KIP-1022.
Not here: lowering a level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from anabranch.client.cluster import Cluster, check
from anabranch.core.errors import ApiError, ClientFault, ErrorCode
from anabranch.core.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from anabranch.core.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from anabranch.core.wire.own_records import RECORDS_FEATURE

TIMEOUT_MS = 30_000
FIXED = frozenset({"kraft.version"})
"""Features whose level says how a quorum of Kafka's works, which there is none of here."""
BY_USE = frozenset({RECORDS_FEATURE})
"""Features whose level goes up with the first use; Kafka can open the folders before that."""
UPGRADE = 1
NOBODY = "No broker of the cluster serves clients: start one, or wait until it is registered."
NONE = (0, 0)


class Feature(NamedTuple):
    """One feature: its level (0: not in use), and by broker the lowest and highest it supports."""

    name: str
    level: int
    supported: Mapping[int, tuple[int, int]]

    @property
    def newest_common(self) -> int:
        """The highest level that every broker supports."""
        return min((high for _, high in self.supported.values()), default=self.level)

    @property
    def newest(self) -> int:
        """The highest level that some broker supports."""
        return max((high for _, high in self.supported.values()), default=self.level)

    @property
    def holding_back(self) -> list[int]:
        """Brokers that keep the level below what others support."""
        return sorted(each for each, (_, high) in self.supported.items() if high < self.newest)


class Raise(NamedTuple):
    """A feature that goes from one level to a higher one."""

    name: str
    before: int
    after: int


async def features_of(cluster: Cluster) -> list[Feature]:
    """Every feature by name, asked of all brokers that serve. Raises ApiError if none does."""

    async def attempt() -> list[Feature]:
        await cluster.metadata([])
        if not cluster.brokers:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, NOBODY)
        request = ApiVersionsRequest(client_software_name="anabranch", client_software_version="0")
        told: dict[int, ApiVersionsResponse] = {}
        for broker_id in sorted(cluster.brokers):
            told[broker_id] = await cluster.send_to(broker_id, request)
            check(told[broker_id].error_code)
        return _features(told)

    return await cluster.retrying(attempt)


def _features(told: Mapping[int, ApiVersionsResponse]) -> list[Feature]:
    newest = max(told.values(), key=lambda each: each.finalized_features_epoch)
    levels = {each.name: each.max_version_level for each in newest.finalized_features}
    ranges = {
        broker_id: {
            each.name: (each.min_version, each.max_version) for each in answer.supported_features
        }
        for broker_id, answer in told.items()
    }
    names = {*levels, *(name for each in ranges.values() for name in each)}
    return [
        Feature(
            name,
            levels.get(name, 0),
            {broker_id: each.get(name, NONE) for broker_id, each in ranges.items()},
        )
        for name in sorted(names - FIXED)
    ]


def raises(features: Sequence[Feature], wanted: Mapping[str, int] | None) -> list[Raise]:
    """What goes up: to the wanted levels, or (None) each to the newest that all brokers support,
    but for those that go up by use.

    Raises ClientFault for a wanted feature that is not there, or that would go down.
    """
    if wanted is None:
        return [
            Raise(each.name, each.level, each.newest_common)
            for each in features
            if each.newest_common > each.level and each.name not in BY_USE
        ]
    known = {each.name: each for each in features}
    found = []
    for name, level in sorted(wanted.items()):
        if name not in known:
            names = ", ".join(known)
            raise ClientFault(
                ErrorCode.INVALID_REQUEST, f"There is no feature {name}; there are {names}."
            )
        before = known[name].level
        if level < before:
            raise ClientFault(
                ErrorCode.INVALID_REQUEST,
                f"{name} is at level {before}; an upgrade cannot lower it to {level}.",
            )
        if level > before:
            found.append(Raise(name, before, level))
    return found


async def upgrade(cluster: Cluster, steps: Sequence[Raise], *, validate_only: bool) -> None:
    """Have the controller raise all of them, or none; raises ApiError with its sentence."""
    request = UpdateFeaturesRequest(
        timeout_ms=TIMEOUT_MS,
        feature_updates=[
            FeatureUpdateKey(feature=each.name, max_version_level=each.after, upgrade_type=UPGRADE)
            for each in steps
        ],
        validate_only=validate_only,
    )

    async def attempt() -> None:
        response: UpdateFeaturesResponse = await cluster.send(request)
        check(response.error_code, response.error_message)
        for each in response.results:
            check(each.error_code, each.error_message)

    await cluster.retrying(attempt)
