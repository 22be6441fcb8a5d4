"""One request as handlers see it.

What: the decoded body, its version, and who sent it over which connection. Not here: the frame that
it came in (`core.wire.frame`), what a handler gives back (`core.outcome`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from anabranch.core.access.principal import Principal


class Request(msgspec.Struct):
    """One decoded request and who sent it.

    `body` is the message class of the API in the sender's version; its `records` fields are slices
    of the frame as it was received, writable, and owned by this request alone.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    principal: Principal
    listener: str
    client_host: str
    connection_id: int
