"""An API key in one version: everything that a request of it needs, looked up once.

An API key or version that is not served closes the connection, as in Kafka, except ApiVersions,
which is answered in version 0 (KIP-511): `unserved` says which. Not here: what handlers do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.api.handler import Handler
from anabranch.core.api.unserved import named
from anabranch.core.errors import ErrorCode
from anabranch.core.types import Piece
from anabranch.core.wire.codec import decoder
from anabranch.core.wire.frame import API_VERSIONS_KEY, frame_response, framer
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.schema import active_fields

REST = "throttle_time_ms"
"""For how long a connection rests: most answers begin with it, that to Produce ends with it."""


class Route:
    """What is run for an API key in a version, with counts of what was asked."""

    __slots__ = (
        "api_key", "begins_with_rest", "charge", "decode", "emptied", "failures", "frame",
        "is_flexible", "name", "of_broker", "opens_session", "requests", "response", "run",
        "tells_rest", "version",
    )  # fmt: skip

    def __init__(self, handler: Handler, run: Callable[..., Any], version: int) -> None:
        spec = API_KEYS[handler.api_key]
        self.api_key = handler.api_key
        self.name = handler.name
        self.version = version
        self.run = run
        self.of_broker = handler.of_broker
        self.opens_session = handler.opens_session
        self.charge = handler.charge
        self.emptied = handler.emptied if run is handler.broker else None
        self.is_flexible = version >= spec.flexible_from
        self.decode = decoder(spec.request, version)
        self.response = spec.response
        fields = [each.name for each in active_fields(spec.response, version)]
        self.tells_rest = REST in fields
        self.begins_with_rest = fields[:1] == [REST]
        self.frame = framer(spec.response, version)
        self.requests = 0
        self.failures = 0


class Tokens(Route):
    """What is run for messages of a login that come without a header, and are answered so."""

    __slots__ = ()
    API_KEY = 36

    def __init__(self, handlers: dict[int, Handler], role: str) -> None:
        handler = handlers[self.API_KEY]
        super().__init__(handler, getattr(handler, role), 0)
        self.frame = _bare


def _bare(_correlation_id: int, answer: Any) -> list[Piece]:
    """A message of a login; nothing when it is refused."""
    if answer.error_code:
        return []
    return [len(answer.auth_bytes).to_bytes(4, "big"), answer.auth_bytes]


def find_route(
    handlers: dict[int, Handler], role: str, api_key: int, version: int, listener: str
) -> Route | Handler | str:
    """The route of a request; ApiVersions' handler where only its version is unknown; else a
    sentence that says what is not served."""
    handler = handlers.get(api_key)
    run = None if handler is None else getattr(handler, role)
    if handler is None or run is None:
        what = named(api_key, "" if handler is None else handler.name)
        return f"{what} is not served on listener {listener}"
    if version in handler.versions:
        return Route(handler, run, version)
    if api_key == API_VERSIONS_KEY:
        return handler
    if handler.advertised is None or version not in handler.advertised:
        return f"{handler.name} version {version} is not served"
    return f"{handler.name} version {version} is advertised but not served"


def unsupported_api_versions(handler: Handler, correlation_id: int) -> list[Piece]:
    """KIP-511: version 0, UNSUPPORTED_VERSION, and the versions of ApiVersions itself."""
    from anabranch.core.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

    mine = ApiVersion(
        api_key=API_VERSIONS_KEY, min_version=handler.versions[0], max_version=handler.versions[-1]
    )
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[mine])
    return frame_response(correlation_id, answer, 0)
