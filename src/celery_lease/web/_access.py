"""Who may come in: the secret in its three states, unset, wrong and right."""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

#: A shorter secret can be guessed and counts as none.
MIN_LENGTH = 16

Verdict = Literal["unset", "missing", "wrong", "right"]


@dataclass(frozen=True)
class Access:
    """The secrets that open the door; the previous one only beside a current one.

    The decision is a function of the header and of the configuration, and of nothing else.
    """

    secret: str = ""
    previous: str = ""

    def judge(self, header: str | None, *, basic: bool = True) -> Verdict:
        """What the `Authorization` header is worth.

        Args:
            header: as received; None when there is none.
            basic: whether Basic authentication counts.
        """
        if not _is_usable(self.secret):
            return "unset"
        scheme, _, credentials = (header or "").strip().partition(" ")
        if not scheme:
            return "missing"
        given = _given(scheme.lower(), credentials.strip(), basic=basic)
        valid = [self.secret, *([self.previous] if _is_usable(self.previous) else [])]
        # Digests, because they are bytes of one length: neither a strange header nor its length tells.
        # All are compared, so that the time does not tell which one it was either.
        matches = [hmac.compare_digest(_digest(given), _digest(secret.encode())) for secret in valid]
        return "right" if given and any(matches) else "wrong"


def _is_usable(secret: str) -> bool:
    return len(secret.strip()) >= MIN_LENGTH


def _digest(text: bytes) -> bytes:
    return sha256(text).digest()


def _given(scheme: str, credentials: str, *, basic: bool) -> bytes:
    """The secret in the header, as bytes; empty if there is none."""
    if scheme == "bearer":
        # Servers decode headers as Latin-1; these are the bytes that were sent.
        return credentials.encode("latin-1", "replace")
    if scheme == "basic" and basic:
        try:
            return base64.b64decode(credentials, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""
