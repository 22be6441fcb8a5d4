"""The HTTP listener: metrics and health. Imported only when `http.listener` is set.

    GET /metrics   Prometheus text
    GET /healthz   200 while the process works, 503 when it has to stop
    GET /readyz    200 while clients are served; nobody listens before and after
    GET /placement          racks and diskless topics, as JSON
    GET /placement/TOPIC    how the partitions of a diskless topic are placed
    GET /diskless/lags      how far this broker is behind the coordinator, for each partition

Rules kept: it only reads; with `http.tokens.file`, those without a token see health alone; what is
no HTTP is refused with a line in the log that says what it
probably was. Not here: the admin interface and the console.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from anabranch.core.metadata.image import MetadataImage
from anabranch.core.settings.listeners import bind_sentence
from anabranch.server.http_guard import HttpGuard
from anabranch.server.http_over_tls import HttpOverTls
from anabranch.server.listener import BindFault
from anabranch.server.logs import logger
from anabranch.server.metrics import NodeCollector, Page
from anabranch.server.other_protocols import kafka_on_http
from anabranch.server.own_faults import described, tell_unexpected
from anabranch.server.placement_json import placed_partitions, placed_topics
from anabranch.server.tls_transport import Handshakes, TlsTransport

if TYPE_CHECKING:
    from anabranch.core.settings.broker import BrokerConfig
    from anabranch.server.observed_node import ObservedNode

STOP_SECONDS = 1
PATIENCE_SECONDS = 60.0
"""How long a request, or the answer to it, may be on its way."""
MOST_CONNECTIONS = 256
"""Far more than those who watch a node; each may hold a page in memory."""
LOG = logger("http")


class HttpProtocol(H11Protocol):
    """HTTP/1.1 that names the clients of other protocols, and ends connections that get nowhere."""

    is_known = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, if there is room for it."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """A connection that still waits for the same request, or sends the same answer, in a while
        is ended: clients that vanish, or never ask, would take one descriptor each for ever."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PATIENCE_SECONDS, self._look, self.cycle)

    def _look(self, before: object) -> None:
        if self.cycle is before:
            self.transport.abort()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Look at the first bytes of a connection, then leave the rest to HTTP."""
        if not self.is_known:
            self.is_known = True
            why = kafka_on_http(data[:8])
            if why:
                peer = self.client[0] if self.client else ""
                LOG.warning("closing a connection", listener="http", peer=peer, why=why)
                self.transport.close()
                return
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Say in the node's own log what uvicorn would say in another one."""
        peer = self.client[0] if self.client else ""
        LOG.warning("an invalid HTTP request was refused", listener="http", peer=peer, why=msg)
        super().send_400_response(msg)


class QuietServer(uvicorn.Server):
    """A server in somebody else's event loop: the signals are the node's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


class HttpListener:
    """The HTTP listener of one node."""

    def __init__(
        self, server: QuietServer, task: asyncio.Task[None], address: str, handshakes: Handshakes
    ) -> None:
        self.address = address
        self._handshakes = handshakes
        self._server = server
        self._task = task

    @classmethod
    async def start(
        cls, node: ObservedNode, host: str, port: int, guard: HttpGuard
    ) -> HttpListener:
        """Bind and serve those whom `guard` lets in. Raises BindFault."""
        bound = bind(host, port)
        handshakes = Handshakes()
        config = uvicorn.Config(
            application(node, guard), lifespan="off", access_log=False, log_config=None,
            log_level="error", timeout_graceful_shutdown=STOP_SECONDS,
            http=partial(protocol, guard, handshakes),  # type: ignore[arg-type]
            ws="none",
        )  # fmt: skip
        config.load()
        bound.listen(config.backlog)  # a node that says that it is ready refuses no one
        server = QuietServer(config)
        task = asyncio.get_running_loop().create_task(server.serve(sockets=[bound]))
        return cls(server, task, f"{host}:{bound.getsockname()[1]}", handshakes)

    async def stop(self) -> None:
        """Close it."""
        self._server.should_exit = True
        await asyncio.wait((self._task,), timeout=2 * STOP_SECONDS)
        self._handshakes.stop()


def protocol(guard: HttpGuard, handshakes: Handshakes, **given: Any) -> asyncio.BaseProtocol:
    """Of a new connection; `given` is what uvicorn makes its protocol with."""
    http = HttpProtocol(**given)
    return TlsTransport(guard, handshakes, HttpOverTls(http)) if guard.uses_tls else http


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises BindFault."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, OverflowError) as fault:
        bound.close()
        where = f"http.listener cannot use {host}:{port}"
        raise BindFault(bind_sentence(where, fault, "http.listener")) from None
    return bound


def application(node: ObservedNode, guard: HttpGuard) -> Starlette:
    """The routes over one node, for those whom `guard` lets in."""
    collector = NodeCollector(node)

    async def metrics(_request: Request) -> Response:
        if node.broker is not None:
            await node.broker.group_lags.refreshed()
        page = await asyncio.to_thread(generate_latest, Page(collector.moment()))
        return Response(page, media_type=CONTENT_TYPE_LATEST)

    async def healthz(_request: Request) -> Response:
        return health(not node.stopped.done())

    async def readyz(_request: Request) -> Response:
        return health(node.is_ready)

    async def placement(_request: Request) -> Response:
        return JSONResponse(placed_topics(known(node)[0]))

    async def placement_of(request: Request) -> Response:
        name = request.path_params["topic"]
        image, config = known(node)
        if name not in image.topic_ids_by_name:
            return JSONResponse({"error": f"There is no topic {name}."}, status_code=404)
        reconciles = config.diskless_managed_rf_auto_reconcile
        return JSONResponse(placed_partitions(image, name, reconciles=reconciles))

    async def lags(_request: Request) -> Response:
        broker = node.broker
        found = () if broker is None else broker.broker.diskless.lags.all()
        return JSONResponse([each._asdict() for each in found])

    return Starlette(
        routes=[
            Route(path, guarded(answer, guard))
            for path, answer in (
                ("/metrics", metrics),
                ("/healthz", healthz),
                ("/readyz", readyz),
                ("/placement", placement),
                ("/placement/{topic}", placement_of),
                ("/diskless/lags", lags),
            )
        ]
    )


def guarded(
    answer: Callable[[Request], Awaitable[Response]], guard: HttpGuard
) -> Callable[..., Awaitable[Response]]:
    """An answer that fails is counted as a fault of the node's own, and is a 500 in one line."""

    async def answered(request: Request) -> Response:
        peer = request.client.host if request.client is not None else ""
        header = request.headers.get("authorization", "")
        if not guard.is_let_in(request.url.path, header, peer):
            return JSONResponse(
                {"error": "Send the header Authorization: Bearer TOKEN."},
                status_code=401,
                headers={"WWW-Authenticate": "Bearer"},
            )
        try:
            return await answer(request)
        except Exception as fault:
            tell_unexpected(fault, f"answering {request.url.path}")
            return JSONResponse({"error": described(fault)}, status_code=500)

    return answered


def known(node: ObservedNode) -> tuple[MetadataImage, BrokerConfig]:
    """The newest metadata that this node has, and its settings."""
    if node.broker is not None:
        return node.broker.broker.image, node.broker.broker.config
    if node.controller is not None:
        return node.controller.controller.known, node.controller.controller.config
    return MetadataImage.empty(), node.config.broker


def health(is_well: bool) -> Response:
    """200 or 503, and the same as JSON."""
    return JSONResponse({"ok": is_well}, status_code=200 if is_well else 503)
