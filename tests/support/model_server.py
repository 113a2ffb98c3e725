"""A server of chat completions on a real port, which answers, errs, stalls and hangs up as a test wants.

It keeps its own books: every request, and what it charges for those whose usage it sent out.
"""

import json
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

from tasks.ingredients import split
from tasks.knowledge import shipped
from tasks.proposal import Question
from tasks.proposer import LexiconProposer

TOKENS_IN, TOKENS_OUT = 700, 90


@dataclass(frozen=True)
class Asked:
    """One request. `number` counts the requests about the same ingredient, from 1."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    number: int

    @cached_property
    def about(self) -> dict[str, Any]:
        """What the model was given."""
        given: dict[str, Any] = json.loads(self.body["messages"][-1]["content"])
        return given

    @property
    def name(self) -> str:
        """The ingredient's text."""
        return str(self.about["ingredient"]["text"])

    def proposal(self, **changes: object) -> str:
        """What the lexicon would say, changed."""
        part = split(self.name)[0]
        proposed = LexiconProposer(shipped()).propose(Question(self.about["ingredient_id"], part))
        return json.dumps(json.loads(proposed) | changes)


@dataclass(frozen=True)
class Sent:
    """A response."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    usage: tuple[int, int] | None = None


class Nothing:
    """No response at all."""


class Stall(Nothing):
    """Say nothing until the server is closed."""


@dataclass(frozen=True)
class Drip(Nothing):
    """Send one byte at a time, for ever; of the headers, or of the body."""

    headers: bool = False


@dataclass(frozen=True)
class HangUp(Nothing):
    """Close the connection, after so many bytes of a response."""

    after: int = 0


Behaviour = Callable[[Asked], Sent | Nothing]


def completion(
    content: str | None,
    *,
    finish: str | None = "stop",
    usage: tuple[int, int] | None = (TOKENS_IN, TOKENS_OUT),
    refusal: str | None = None,
) -> Sent:
    """A completion with one choice."""
    message = {"role": "assistant", "content": content, "refusal": refusal}
    data: dict[str, Any] = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if usage:
        tokens_in, tokens_out = usage
        data["usage"] = {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        }
    return Sent(json.dumps(data).encode(), usage=usage)


def error(status: int, code: object = None, message: str = "no", **headers: str) -> Sent:
    """An error as the protocol has it; header names with _ for -."""
    body = json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode()
    return Sent(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def lexicon(asked: Asked) -> Sent:
    """Answer as the lexicon would."""
    return completion(asked.proposal())


class ModelServer:
    """The server. `behave` may be replaced at any time."""

    def __init__(self, behave: Behaviour = lexicon) -> None:
        self.behave = behave
        self.requests: list[Asked] = []
        self.usages: list[tuple[int, int]] = []
        self.closing = Event()
        self._numbers: Counter[str] = Counter()
        self._lock = Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def names(self) -> list[str]:
        """The ingredients that were asked about, in order."""
        return [asked.name for asked in self.requests]

    def close(self) -> None:
        """End it, and whatever stalls in it."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, body: dict[str, Any], headers: Mapping[str, str]) -> Asked:
        """Count a request."""
        with self._lock:
            name = Asked(body, headers, 0).name
            self._numbers[name] += 1
            asked = Asked(body, headers, self._numbers[name])
            self.requests.append(asked)
            return asked

    def charge(self, usage: tuple[int, int]) -> None:
        """Count what was sent out."""
        with self._lock:
            self.usages.append(usage)


class _Server(ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none of the test's business."""


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    return type("Handler", (_Handler,), {"model": server})


class _Handler(BaseHTTPRequestHandler):
    model: ModelServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = self.model.take(json.loads(self.rfile.read(length)), headers)
        match self.model.behave(asked):
            case Sent() as sent:
                self._send(sent)
            case Stall():
                self.model.closing.wait()
            case Drip(headers_too):
                self._drip(headers=headers_too)
            case HangUp(after):
                self._hang_up(after)

    def _send(self, sent: Sent) -> None:
        if sent.usage:
            self.model.charge(sent.usage)
        self.send_response(sent.status)
        self.send_header("Content-Length", str(len(sent.body)))
        for name, value in sent.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent.body)

    def _drip(self, *, headers: bool) -> None:
        if headers:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        else:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
        while not self.model.closing.wait(0.05):
            self.wfile.write(b" x")

    def _hang_up(self, after: int) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"[:after])
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, *_arguments: object) -> None:
        pass
