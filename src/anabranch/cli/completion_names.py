"""Names that a shell completes: topics, groups, brokers, asked of the cluster.

Rule kept: completing never fails, prints nothing but names, and never keeps a person waiting: a
cluster that does not answer at once has no names. Not here: the shells' own scripts
(`completion.py`).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from anabranch.cli.cluster_command import DEFAULT_BOOTSTRAP, ask

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster

PATIENCE_SECONDS = 2.0
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completer(names: Callable[[Cluster], Awaitable[Sequence[str]]]) -> Completer:
    def complete(
        context: click.Context, _parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        bootstrap = context.params.get("bootstrap") or os.environ.get(
            "ANABRANCH_BOOTSTRAP_SERVER", DEFAULT_BOOTSTRAP
        )
        try:
            found = ask(bootstrap, names, timeout_seconds=PATIENCE_SECONDS)
        except Exception:
            return []
        return [CompletionItem(name) for name in sorted(found) if name.startswith(begun)]

    return complete


async def _topics(cluster: Cluster) -> list[str]:
    return [each.name or "" for each in (await cluster.metadata(None)).topics]


async def _groups(cluster: Cluster) -> list[str]:
    from anabranch.client.groups import list_groups

    return [each.group_id for each in (await list_groups(cluster)).groups]


async def _brokers(cluster: Cluster) -> list[str]:
    from anabranch.client.admin import describe_cluster

    return [str(each.broker_id) for each in (await describe_cluster(cluster)).brokers]


complete_topics = _completer(_topics)
complete_groups = _completer(_groups)
complete_brokers = _completer(_brokers)
