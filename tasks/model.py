"""A model behind an OpenAI-compatible endpoint: one request, one reply, no retry of its own.

Every call is counted and paid for by who makes it, so nothing here may make one more: no retries, no
redirects, no proxy from the environment (see docs/decisions/0020).
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import httpx

from tasks.knowledge import Knowledge
from tasks.prompt import PROMPT_VERSION, RESPONSE_FORMAT, messages
from tasks.proposal import Question
from tasks.reply import Reason, Reply, read

_CONNECT_SECONDS = 5.0
# A completion of the few hundred tokens that are asked for is far below this.
_MOST_BYTES = 1_000_000
_MOST_TOKENS_OUT = 1_000
# The names that servers have for the limit of an answer.
_LIMITS = ("max_completion_tokens", "max_tokens")


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent, and how many tokens it can cost at most."""

    body: bytes
    most_tokens_in: int
    most_tokens_out: int


@dataclass(frozen=True)
class Endpoint:
    """Where a model is, and how it wants to be asked.

    Attributes:
        url: the base URL, up to and including `/v1`.
        name: the model's name.
        key: sent as a bearer token; "" for a server that wants none.
        timeout_seconds: for one call, from beginning to end.
        extra: fields for every request; None takes a field out that would be sent otherwise.
    """

    url: str
    name: str
    key: str = field(default="", repr=False)
    timeout_seconds: float = 30.0
    extra: Mapping[str, Any] = field(default_factory=dict)


class Model:
    """The model. For any number of threads of one process; close it at the end."""

    def __init__(self, endpoint: Endpoint, knowledge: Knowledge) -> None:
        self._endpoint = endpoint
        self._knowledge = knowledge
        self._fields = _fields(endpoint)
        extra = json.dumps(dict(endpoint.extra), sort_keys=True)
        #: Changes when the same question may get another answer.
        self.version = f"{endpoint.name}@{sha256(f'{PROMPT_VERSION}{extra}'.encode()).hexdigest()[:8]}"
        self._client = httpx.Client(
            timeout=httpx.Timeout(endpoint.timeout_seconds, connect=_CONNECT_SECONDS),
            follow_redirects=False,
            trust_env=False,
            # An answer is small. Compressed, a small one could become a large one.
            headers={"Accept-Encoding": "identity", **_authorization(endpoint.key)},
        )

    @property
    def timeout_seconds(self) -> float:
        """For one call."""
        return self._endpoint.timeout_seconds

    def request(self, question: Question) -> Request:
        """Return the request that asks about one ingredient; equal questions give equal bytes."""
        data = {**self._fields, "messages": messages(question, self._knowledge)}
        body = json.dumps(data, ensure_ascii=False, sort_keys=True).encode(errors="replace")
        limit = max(data[name] for name in _LIMITS if name in data)
        # No tokenizer makes more tokens than there are bytes.
        return Request(body, len(body), limit)

    def ask(self, request: Request) -> Reply:
        """Send a request, once; whatever comes of it is a reply."""
        try:
            return self._ask(request)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return Reply(Reason.UNREACHABLE, f"{type(error).__name__}: {error}")
        except httpx.TimeoutException:
            return Reply(Reason.STALLED, f"no whole answer within {self.timeout_seconds:g} s")
        except httpx.TransportError as error:
            return Reply(Reason.DISCONNECTED, f"{type(error).__name__}: {error}")

    def _ask(self, request: Request) -> Reply:
        deadline = time.monotonic() + self.timeout_seconds
        address = f"{self._endpoint.url.rstrip('/')}/chat/completions"
        headers = {"Content-Type": "application/json"}
        with self._client.stream("POST", address, content=request.body, headers=headers) as response:
            body = b""
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > _MOST_BYTES:
                    return Reply(Reason.NOT_OPENAI, f"more than {_MOST_BYTES} bytes")
                # The client's own timeout begins anew with every byte.
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("dripping")
            headers = {name: self._without_key(value) for name, value in response.headers.items()}
            # Latin-1 maps every byte to a character and back.
            said = self._without_key(body.decode("latin-1")).encode("latin-1")
            return read(response.status_code, headers, said)

    def _without_key(self, text: str) -> str:
        """What a server sends may repeat the key, and is quoted in logs and results."""
        key = self._endpoint.key
        return text.replace(key, "***") if key else text

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


def _authorization(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _fields(endpoint: Endpoint) -> dict[str, Any]:
    usual = {
        "model": endpoint.name,
        "temperature": 0,
        "max_completion_tokens": _MOST_TOKENS_OUT,
        "response_format": RESPONSE_FORMAT,
    }
    return {name: value for name, value in {**usual, **endpoint.extra}.items() if value is not None}
