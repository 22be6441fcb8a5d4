"""What HTTP and metrics read of a node: its settings, its roles, and how far it has come.

Why: the node starts the HTTP listener, so that what the listener shows must not need the node's own
module. Rule kept: whoever reads here changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from anabranch.server.changed_settings import ChangedSettings
    from anabranch.server.config import NodeConfig
    from anabranch.server.controller import ControllerShell
    from anabranch.server.listener import Acceptor
    from anabranch.server.own_faults import OwnFaults
    from anabranch.server.receive_memory import ReceiveMemory
    from anabranch.server.request_shell import RequestShell
    from anabranch.server.roles import BrokerRole


class ObservedNode(Protocol):
    """See `node.Node`."""

    config: NodeConfig
    memory: ReceiveMemory
    own_faults: OwnFaults
    changed: ChangedSettings
    acceptors: list[Acceptor]
    broker: BrokerRole | None
    """None on a node that is a controller alone, and before it has begun."""
    controller: ControllerShell | None
    """None on a node that is a broker alone, and before it has begun."""
    controller_serving: RequestShell | None
    started_seconds: float
    is_ready: bool
    """Whether clients are served."""
    stopped: asyncio.Future[str]
    """Done, with the reason, when the node has to stop."""
