"""A web server on a real port, for sites and endpoints that serve, err, stall and hang up as a test wants."""

import json
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any


@dataclass(frozen=True)
class Request:
    """What came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body."""
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed

    @property
    def urls(self) -> list[str]:
        """Of an announcement."""
        return list(self.json["urlList"])


@dataclass(frozen=True)
class Response:
    """What goes out.

    Attributes:
        body: in pieces, it goes out without its length.
        status: of HTTP.
        headers: besides the length.
        cut: promise more than the body, and hang up.
        stall: say nothing more after the body until the server is closed.
    """

    body: bytes | Iterable[bytes] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    stall: bool = False


Behaviour = Callable[[Request], Response]


class WebServer:
    """One server. What is in `pages` is served; anything else is left to `behave`, or not found."""

    def __init__(self, behave: Behaviour | None = None) -> None:
        self.pages: dict[str, Response | bytes] = {}
        self.behave = behave or (lambda _: Response(status=404))
        self.requests: list[Request] = []
        self.closing = Event()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"web": self}))
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """The root, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [request.path for request in self.requests]

    @property
    def posts(self) -> list[Request]:
        """The announcements, in order."""
        return [request for request in self.requests if request.method == "POST"]

    def close(self) -> None:
        """End it, and whatever stalls in it."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: Request) -> Response:
        """Count a request, and find what it gets."""
        self.requests.append(request)
        page = self.pages.get(request.path)
        if page is None:
            return self.behave(request)
        return Response(page) if isinstance(page, bytes) else page


class _Server(ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none of the test's business."""


class _Handler(BaseHTTPRequestHandler):
    web: WebServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        response = self.web.answer(Request(self.command, self.path, headers, body))
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        pieces = [response.body] if isinstance(response.body, bytes) else response.body
        if isinstance(response.body, bytes):
            self.send_header("Content-Length", str(len(response.body) + 1_000 * response.cut))
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)
        if response.stall:
            self.web.closing.wait()
        if response.cut or response.stall or pieces is response.body:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def log_message(self, *_arguments: object) -> None:
        pass
