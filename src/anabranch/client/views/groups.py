"""Consumer groups: which there are, one with its members and offsets, and a change of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.core.coordination.groups.classic.subscription import assigned_partitions

if TYPE_CHECKING:
    from anabranch.client.groups import Progress
    from anabranch.core.wire.messages.describe_groups import DescribedGroup
    from anabranch.core.wire.messages.list_groups import ListedGroup


def groups_view(found: Iterable[ListedGroup], state: str | None = None) -> list[dict[str, Any]]:
    """The groups of a cluster, or those in a state."""
    return [
        {
            "group": each.group_id,
            "state": each.group_state,
            "protocol": each.protocol_type,
            "type": each.group_type,
        }
        for each in found
        if state is None or each.group_state.lower() == state.lower()
    ]


def group_view(described: DescribedGroup, rows: Sequence[Progress]) -> dict[str, Any]:
    """One group: its members with their partitions, its offsets with their lag."""
    return {
        "group": described.group_id,
        "state": described.group_state,
        "protocol": described.protocol_data,
        "members": [
            {
                "member": each.member_id,
                "instance": each.group_instance_id,
                "client": each.client_id,
                "host": each.client_host,
                "partitions": [f"{t}-{i}" for t, i in assigned_partitions(each.member_assignment)],
            }
            for each in described.members
        ],
        "offsets": [{**each._asdict(), "lag": each.lag} for each in rows],
    }


def reset_view(
    group: str, rows: Iterable[tuple[tuple[str, int], int, int]], *, executed: bool
) -> dict[str, Any]:
    """Offsets that were, or would be, reset: from each to each."""
    names = ("topic", "partition", "from", "to")
    told = [dict(zip(names, (*place, was, to), strict=True)) for place, was, to in rows]
    return {"group": group, "executed": executed, "offsets": told}
