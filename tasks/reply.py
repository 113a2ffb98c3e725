"""What a server of chat completions replied, read strictly: the outcome first, then the text.

The order matters: the HTTP status, then whether it is a completion at all, then why the model stopped, then
whether it refused, and only then what it wrote. Half an answer must never be read as a whole one.

| reason | what happened | then | costs |
|---|---|---|---|
| answered, fenced, thinking | JSON as asked for; in a code fence; after thinking aloud | judge | usage |
| prose | a text that is no JSON | judge (rule S1 rejects it) | usage |
| refusal, content_filter | the model, or a filter, would not answer | reject | usage |
| truncated | it stopped at the limit of tokens | reject | usage |
| unfinished | it stopped for another reason, such as calling a tool | reject | usage |
| empty | it wrote nothing | reject | usage |
| no_choices, not_openai | a 200 without a completion; without JSON, such as a web page | later | reserve |
| rate_limited | 429 that waiting cures | again | nothing |
| server_error | 5xx and the like | again | reserve |
| stalled, disconnected | no answer in time; the connection broke | again | reserve |
| unreachable | no connection | again | nothing |
| quota | 402, or 429 that waiting does not cure | stop | nothing |
| unauthorized, forbidden, not_found | 401, 403, 404 | stop | nothing |
| redirected, bad_request | 3xx; any other 4xx | stop | nothing |

A completion without usage costs the reserve, and says `no_usage`. "Again" is one more try in this run,
"later" is left to the next one, "stop" ends the run: the next ingredient would fare no better.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tasks.retrying import retry_after


class Reason(StrEnum):
    """How a call ended; the table above."""

    ANSWERED = "answered"
    FENCED = "fenced"
    THINKING = "thinking"
    PROSE = "prose"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    TRUNCATED = "truncated"
    UNFINISHED = "unfinished"
    EMPTY = "empty"
    NO_CHOICES = "no_choices"
    NOT_OPENAI = "not_openai"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    STALLED = "stalled"
    DISCONNECTED = "disconnected"
    UNREACHABLE = "unreachable"
    QUOTA = "quota"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    REDIRECTED = "redirected"
    BAD_REQUEST = "bad_request"


class Then(StrEnum):
    """What becomes of the ingredient."""

    JUDGE = "judge"
    REJECT = "reject"
    LATER = "later"
    AGAIN = "again"
    STOP = "stop"


_THEN = {
    Then.JUDGE: {Reason.ANSWERED, Reason.FENCED, Reason.THINKING, Reason.PROSE},
    Then.REJECT: {
        *(Reason.REFUSAL, Reason.CONTENT_FILTER, Reason.TRUNCATED, Reason.UNFINISHED, Reason.EMPTY),
    },
    Then.LATER: {Reason.NO_CHOICES, Reason.NOT_OPENAI},
    Then.AGAIN: {
        *(Reason.RATE_LIMITED, Reason.SERVER_ERROR),
        *(Reason.STALLED, Reason.DISCONNECTED, Reason.UNREACHABLE),
    },
    Then.STOP: {
        *(Reason.QUOTA, Reason.UNAUTHORIZED, Reason.FORBIDDEN, Reason.NOT_FOUND),
        *(Reason.REDIRECTED, Reason.BAD_REQUEST),
    },
}
_FREE = _THEN[Then.STOP] | {Reason.RATE_LIMITED, Reason.UNREACHABLE}
_MOST_DETAIL_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Usage:
    """How many tokens the server counted."""

    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of one call.

    Attributes:
        reason: how it ended.
        detail: more about that, for people; one short line.
        text: what the model wrote; without fence and thinking where it is to be judged.
        usage: None where the server did not say.
        retry_after: seconds that the server asks to wait before the next try.
    """

    reason: Reason
    detail: str = ""
    text: str = ""
    usage: Usage | None = None
    retry_after: float | None = None

    @property
    def then(self) -> Then:
        """What becomes of the ingredient."""
        return next(then for then, reasons in _THEN.items() if self.reason in reasons)

    @property
    def free(self) -> bool:
        """Whether the server did not take the request up, so that nothing was spent."""
        return self.reason in _FREE and self.usage is None

    @property
    def about_the_request(self) -> bool:
        """Whether the reason may lie in what was asked, not in the server, the key or the address."""
        return self.reason not in _FREE or self.reason is Reason.BAD_REQUEST

    @property
    def words(self) -> str:
        """The reason as it is recorded."""
        paid_blindly = self.usage is None and self.then in {Then.JUDGE, Then.REJECT}
        return f"{self.reason} no_usage" if paid_blindly else self.reason.value


def read(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """Return what a whole HTTP response says. Header names are lower-case, or `headers` does not care."""
    if status == 200:  # noqa: PLR2004  # as everybody knows it
        return _completion(_parsed(body))
    return _error(status, headers, _parsed(body))


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):  # also a body that is no UTF-8, and numbers without end
        return None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _line(value: Any) -> str:
    """Anything as one short printable line."""
    text = "".join(character if character.isprintable() else " " for character in str(value))
    return " ".join(text.split())[:_MOST_DETAIL_CHARACTERS]


# --- completions --------------------------------------------------------------------------------------------


def _completion(data: Any) -> Reply:
    if not isinstance(data, dict):
        return Reply(Reason.NOT_OPENAI, "status 200, and no JSON object")
    usage = _usage(data.get("usage"))
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return Reply(Reason.NO_CHOICES, "status 200 without a choice", usage=usage)
    return replace(_choice(choice.get("finish_reason"), _dict(choice.get("message"))), usage=usage)


# Far beyond any context; more than that is no count of tokens.
_MOST_TOKENS = 1_000_000_000


def _usage(data: Any) -> Usage | None:
    tokens_in, tokens_out, total = (
        count if type(count) is int and 0 <= count <= _MOST_TOKENS else None
        for count in map(_dict(data).get, ("prompt_tokens", "completion_tokens", "total_tokens"))
    )
    if tokens_in is None or tokens_out is None:
        return None
    # Some gateways leave what the model thought out of the completion. It is in the total, and on the bill.
    return Usage(tokens_in, max(tokens_out, (total or 0) - tokens_in))


def _choice(finish_reason: Any, message: dict[str, Any]) -> Reply:
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    if finish_reason == "length":
        return Reply(Reason.TRUNCATED, "the answer was cut off at the limit of tokens", text)
    if finish_reason == "content_filter":
        return Reply(Reason.CONTENT_FILTER, "a filter of the server withheld the answer", text)
    if finish_reason != "stop":
        return Reply(Reason.UNFINISHED, f"finish_reason is {_line(finish_reason)}", text)
    if message.get("refusal"):
        return Reply(Reason.REFUSAL, f"the model refused: {_line(message['refusal'])}", text)
    if not text.strip():
        return Reply(Reason.EMPTY, "the model wrote nothing")
    return _written(text.strip())


_THOUGHT = re.compile(r"\A\s*<(think|thinking|thought|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
# Some templates open the thinking in the prompt, so that only its end is in the answer.
_END_OF_THOUGHT = re.compile(r"\A.*</(?:think|thinking|thought|reasoning)>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)(.*?)```[ \t]*$", re.DOTALL | re.MULTILINE)
# Longer texts are not searched: a thousand tokens are shorter, and half a second of searching is the worst.
_MOST_SEARCHED_CHARACTERS = 8_000


def _written(text: str) -> Reply:
    """Take the JSON out of what may stand around it: thinking before it, one fence with it inside."""
    if _is_object(text):
        return Reply(Reason.ANSWERED, text=text)
    if len(text) > _MOST_SEARCHED_CHARACTERS:
        return Reply(Reason.PROSE, text=text)
    spoken = _END_OF_THOUGHT.sub("", _THOUGHT.sub("", text)).strip()
    if _is_object(spoken):
        return Reply(Reason.THINKING, text=spoken)
    fenced = [content.strip() for language, content in _FENCE.findall(spoken) if _may_be_json(language)]
    outside = _FENCE.sub("", spoken).strip()
    # Of two there is no telling which is meant.
    found = [each for each in (*fenced, outside) if _is_object(each)]
    return Reply(Reason.FENCED, text=found[0]) if len(found) == 1 else Reply(Reason.PROSE, text=text)


def _may_be_json(language: str) -> bool:
    return language.casefold() in {"", "json", "jsonc", "json5"}


def _is_object(text: str) -> bool:
    """Whether the text has the look of one JSON object. What is in it is for the rules to judge."""
    return text.startswith("{") and text.endswith("}")


# --- errors -------------------------------------------------------------------------------------------------

_BILLING = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_hard_limit_reached",
        "billing_not_active",
    }
)
_BY_STATUS = {
    401: Reason.UNAUTHORIZED,
    402: Reason.QUOTA,
    403: Reason.FORBIDDEN,
    404: Reason.NOT_FOUND,
    408: Reason.SERVER_ERROR,
    409: Reason.SERVER_ERROR,
    425: Reason.SERVER_ERROR,
    429: Reason.RATE_LIMITED,
}
# By the first digit; what answers 2xx other than 200 does not speak this protocol.
_BY_CLASS = {3: Reason.REDIRECTED, 4: Reason.BAD_REQUEST, 5: Reason.SERVER_ERROR}


def _error(status: int, headers: Mapping[str, str], data: Any) -> Reply:
    error = _dict(data).get("error")
    # Some servers say it in a plain text, some have a number for a code.
    said = error if isinstance(error, str) else _dict(error).get("message") or ""
    kinds = {str(_dict(error).get(name)) for name in ("code", "type")}
    detail = f"status {status}{f', {_line(said)}' if said else ''}"
    reason = _BY_STATUS.get(status) or _BY_CLASS.get(status // 100, Reason.NOT_OPENAI)
    if reason is Reason.RATE_LIMITED and kinds & _BILLING:
        return Reply(Reason.QUOTA, detail)
    if reason is Reason.BAD_REQUEST and "content_filter" in kinds:
        return Reply(Reason.CONTENT_FILTER, detail)  # some charge for that, and do not say how much
    if reason is Reason.REDIRECTED:
        detail += f", to {_line(headers.get('location', 'nowhere'))}"
    return Reply(reason, detail, retry_after=retry_after(headers))
