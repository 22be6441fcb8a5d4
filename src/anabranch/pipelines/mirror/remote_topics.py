"""Topics on both sides: what the source has that is to be mirrored, and the target's like of it.

What: `Topics.refresh` lists both clusters, creates and grows topics on the target, and knows ids
and limits from then on; `sync_configs` sets their settings; `internal` creates the mirror's own.
Rules kept: what cannot be created is told with its remedy, and the other topics go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from anabranch.client.admin import (
    ConfigOperation,
    ResourceKind,
    alter_configs,
    create_partitions,
    create_topic,
)
from anabranch.client.cluster import Cluster
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.mirror.config import Flow
from anabranch.core.mirror.filters import takes_topic
from anabranch.core.mirror.topics import (
    ConfigSource,
    SourceConfig,
    TopicShape,
    config_changes,
    topic_work,
)
from anabranch.core.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)

LIMIT = "max.message.bytes"
USUAL_LIMIT_BYTES = (1 << 20) + 12
"""Of a topic whose setting cannot be read."""
TOPICS_A_REQUEST = 200
SEEN_SECONDS = 5.0
SEEN_PAUSE_SECONDS = 0.1
REMEDIES = {
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        " Set replication.factor, or {key}, to at most the number of brokers, or to -1 for the "
        "target's default."
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: " Give the mirror CREATE and ALTER on the target.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: " Give the mirror CREATE on the target.",
}
Tell = Callable[[str], None]


async def shapes(cluster: Cluster) -> dict[str, TopicShape]:
    """All topics of a cluster."""
    found = await cluster.metadata(None)
    return {
        topic.name or "": TopicShape(topic.name or "", len(topic.partitions), topic.topic_id)
        for topic in found.topics
        if not topic.error_code
    }


async def topic_configs(
    cluster: Cluster, names: Iterable[str], keys: list[str] | None = None
) -> dict[str, list[DescribeConfigsResourceResult]]:
    """The settings of many topics; those that cannot be read are left out."""
    found = {}
    wanted = sorted(names)
    for first in range(0, len(wanted), TOPICS_A_REQUEST):
        resources = [
            DescribeConfigsResource(
                resource_type=ResourceKind.TOPIC, resource_name=name, configuration_keys=keys
            )
            for name in wanted[first : first + TOPICS_A_REQUEST]
        ]
        response = await cluster.send(DescribeConfigsRequest(resources=resources))
        for each in response.results:
            if not each.error_code:
                found[each.resource_name] = each.configs
    return found


class Topics:
    """The topics of one flow."""

    def __init__(self, flow: Flow, tell: Tell) -> None:
        self.flow = flow
        self.mirrored: dict[str, TopicShape] = {}
        """Name on the target -> the topic at the source."""
        self.there: dict[str, TopicShape] = {}
        """Name on the target -> the topic there."""
        self.limits: dict[str, int] = {}
        self._tell = tell

    async def refresh(self, source: Cluster, target: Cluster) -> None:
        """Look at both clusters, and create and grow what the target lacks; what was made is waited
        for, since brokers learn of it a little later."""
        self.mirrored = self.wanted(await shapes(source))
        there = await shapes(target)
        work = topic_work(self.mirrored, there)
        for note in work.notes:
            self._tell(f"{self.flow.name}: {note}")
        made = {}
        for name, partitions in work.create.items():
            if await self._create(source, target, name, partitions):
                made[name] = partitions
        for name, partitions in work.grow.items():
            what = f"{name} cannot grow"
            if await self._try(what, create_partitions(target, name, partitions)):
                made[name] = partitions
        deadline = asyncio.get_running_loop().time() + SEEN_SECONDS
        while made and asyncio.get_running_loop().time() < deadline:
            there = await shapes(target)
            if all(name in there and there[name].partitions >= made[name] for name in made):
                break
            await asyncio.sleep(SEEN_PAUSE_SECONDS)
        self.there = {name: each for name, each in there.items() if name in self.mirrored}
        limits = await topic_configs(target, self.there, [LIMIT])
        self.limits = {
            name: int(each.value or 0)
            for name, configs in limits.items()
            for each in configs
            if each.name == LIMIT
        }

    def wanted(self, there: Mapping[str, TopicShape]) -> dict[str, TopicShape]:
        """The topics to be mirrored among those of the source, by their names on the target."""
        flow, policy = self.flow, self.flow.policy
        heartbeats = flow.on("heartbeats.replication.enabled")
        return {
            policy.remote_topic(name): shape
            for name, shape in sorted(there.items())
            if takes_topic(name, flow.topics, policy, flow.target, heartbeats=heartbeats)
        }

    async def _create(self, source: Cluster, target: Cluster, name: str, partitions: int) -> bool:
        topic = self.mirrored[name].name
        configs: dict[str, str] = {}
        if self.flow.on("sync.topic.configs.enabled"):
            found = await topic_configs(source, [topic])
            changes = self._changes(found.get(topic, []), {})
            configs = {key: value for key, value in changes if value is not None}
        return await self._try(
            f"{name} cannot be created",
            create_topic(
                target, name, partitions=partitions, configs=configs,
                replication_factor=self.flow.number("replication.factor"),
            ),
        )  # fmt: skip

    async def _try(self, what: str, work: Awaitable[object]) -> bool:
        """Whether it was done; else it is told why not."""
        try:
            await work
        except ApiError as fault:
            if fault.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return True
            remedy = REMEDIES.get(fault.code, "").format(key="replication.factor")
            self._tell(f"{self.flow.name}: {what} on {self.flow.target}: {fault.message}{remedy}")
            return False
        return True

    def _changes(
        self, configs: Iterable[DescribeConfigsResourceResult], there: Mapping[str, str | None]
    ) -> list[tuple[str, str | None]]:
        found = [
            SourceConfig(
                each.name, each.value, each.config_source, each.read_only, each.is_sensitive
            )
            for each in configs
        ]
        from_source = self.flow.settings["use.defaults.from"] == "source"
        return list(config_changes(found, there, self.flow.configs, from_source=from_source))

    async def sync_configs(self, source: Cluster, target: Cluster) -> None:
        """Set what differs."""
        names = {shape.name: name for name, shape in self.mirrored.items() if name in self.there}
        source_configs = await topic_configs(source, names)
        target_configs = await topic_configs(target, names.values())
        for topic, configs in source_configs.items():
            name = names[topic]
            there = {
                each.name: each.value
                for each in target_configs.get(name, [])
                if each.config_source == ConfigSource.TOPIC
            }
            changes = [
                (ConfigOperation.DELETE if value is None else ConfigOperation.SET, key, value)
                for key, value in self._changes(configs, there)
            ]
            if changes:
                what = f"settings of {name} cannot be set"
                await self._try(what, alter_configs(target, ResourceKind.TOPIC, name, changes))

    def limit(self, name: str) -> int:
        """The largest batch that a topic of the target takes."""
        return self.limits.get(name) or USUAL_LIMIT_BYTES


async def internal(
    cluster: Cluster, name: str, *, partitions: int, replication_factor: int, key: str
) -> None:
    """Create a compacted topic of the mirror's own. Raises ApiError with the remedy."""
    try:
        await create_topic(
            cluster, name, partitions=partitions, replication_factor=replication_factor,
            configs={"cleanup.policy": "compact"},
        )  # fmt: skip
    except ApiError as fault:
        if fault.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return
        remedy = REMEDIES.get(fault.code, "").format(key=key)
        raise ApiError(fault.code, f"{name} cannot be created: {fault.message}{remedy}") from None
