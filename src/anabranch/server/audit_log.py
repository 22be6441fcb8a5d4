"""The audit log: each decision of access rules, as lines of the logger `anabranch.authorizer`.

What: the level DEBUG of that logger switches it on, also while the node runs. Why a level, and not
the INFO of Kafka for what is denied: a client that lists topics is denied each one that it may not
see, and a line for each would fill the disk. Rule kept: names stand in fields, which are quoted, so
that none of them can make a line of its own. Not here: decisions (`standard_authorizer.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.wire.messages import API_KEYS
from anabranch.server.logs import logger

if TYPE_CHECKING:
    from anabranch.core.access.authorize import Operation, ResourceType
    from anabranch.core.request import Request

LOG = logger("authorizer")
ANY = "(any)"


def audit(
    request: Request, operation: Operation, resource: ResourceType, name: str | None,
    is_allowed: bool,
) -> None:  # fmt: skip
    """Write a line if somebody reads them."""
    if not LOG.is_debug:
        return
    LOG.debug(
        "access allowed" if is_allowed else "access denied",
        principal=str(request.principal),
        operation=operation.name,
        host=request.client_host,
        resource=resource.name,
        name=ANY if name is None else name,
        request=API_KEYS[request.api_key].name,
    )
