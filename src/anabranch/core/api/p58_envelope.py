"""Envelope: a broker passes a client's request on, with the client's name, to the controller.

KIP: KIP-590
Versions: 0
Behaviour: the sender must be allowed CLUSTER_ACTION; the request inside must be one that brokers
    forward, and no envelope. It is decided in the name of the principal inside. The answer inside
    has header and body, without a size.
Skipped: nothing
"""

from __future__ import annotations

from functools import partial
from ipaddress import ip_address
from typing import Any, cast

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.access.principal import Principal
from anabranch.core.access.principal_bytes import read_principal
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Charge, Need
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode, ProtocolError
from anabranch.core.outcome import Decided, Propose, then
from anabranch.core.request import NO_LISTENER, Request
from anabranch.core.types import SIZE_BYTES, Buffer
from anabranch.core.wire.codec import decode
from anabranch.core.wire.frame import frame_response, read_request_header
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


def decide(controller: Controller, request: Request, now_ms: int) -> Decided:
    """Unwrap, decide, wrap."""
    if not cluster_allowed(controller.authorizer, request, Operation.CLUSTER_ACTION):
        raise ClientFault(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    inner, handler = unwrap(request)
    assert handler.controller is not None
    outcome = handler.controller(controller, inner, now_ms)
    if isinstance(outcome, Propose):
        result = outcome.result
        answer = wrap(inner, result.response)
        return Result(result.records, answer, result.reasons, result.atomic)
    return then(outcome, partial(wrap, inner))


def unwrap(request: Request) -> tuple[Request, Handler]:
    """The request inside and who serves it. Raises ClientFault: bytes that cannot be read are
    UNSUPPORTED_VERSION, as in Kafka, since another version is why that happens between nodes."""
    from anabranch.core.api.registry import handlers

    body: EnvelopeRequest = request.body
    frame = memoryview(body.request_data)
    try:
        header = read_request_header(frame)
        handler = handlers().get(header.api_key)
        if handler is None:
            raise ClientFault(ErrorCode.UNSUPPORTED_VERSION)
        is_forwarded = handler.broker is forward or handler.forwards_some
        if not is_forwarded or handler.controller is None:
            raise ClientFault(
                ErrorCode.INVALID_REQUEST, f"API key {header.api_key} is not forwarded."
            )
        if header.version not in handler.versions:
            raise ClientFault(ErrorCode.UNSUPPORTED_VERSION)
        schema = API_KEYS[header.api_key].request
        message = decode(schema, frame, header.version, header.body_offset)
    except ProtocolError as problem:
        raise ClientFault(ErrorCode.UNSUPPORTED_VERSION, str(problem)) from None
    try:
        host = str(ip_address(bytes(body.client_host_address)))
    except ValueError as problem:
        raise ClientFault(ErrorCode.INVALID_REQUEST, str(problem)) from None
    inner = Request(
        api_key=header.api_key,
        version=header.version,
        correlation_id=header.correlation_id,
        client_id=header.client_id,
        body=message,
        principal=_principal(body),
        listener=NO_LISTENER,
        client_host=host,
        connection_id=request.connection_id,
        session=request.session,
    )
    return inner, handler


def _principal(body: EnvelopeRequest) -> Principal:
    try:
        return read_principal(body.request_principal)
    except (ProtocolError, ValueError) as problem:
        raise ClientFault(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(problem)) from None


def wrap(inner: Request, response: Any) -> EnvelopeResponse:
    """The answer inside an answer. A NOT_CONTROLLER inside would be the envelope's own."""
    pieces = frame_response(inner.correlation_id, response, inner.version)
    framed = b"".join(cast("list[Buffer]", pieces))  # a controller lends nothing
    return EnvelopeResponse(response_data=framed[SIZE_BYTES:])


def refuse(_request: Request, code: ErrorCode, _sentence: str) -> EnvelopeResponse:
    """An envelope without an answer."""
    return EnvelopeResponse(error_code=code)


HANDLER = Handler(
    api_key=58,
    name="Envelope",
    versions=range(1),
    controller=decides(decide, refuse),
    needs=(Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),),
    charge=Charge.EXEMPT,
    kips=("KIP-590",),
)
