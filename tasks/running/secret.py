"""The secret of the web app on this machine: made once, and kept with the data."""

import os
import secrets
from pathlib import Path

FILE = "cron-secret"


def secret_in(data: Path) -> str:
    """Return the secret in the data folder, which only its owner may read; make it if there is none."""
    descriptor = os.open(data / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+", encoding="ascii") as file:
        secret = file.read().strip()
        if not secret:
            secret = secrets.token_urlsafe(24)
            file.write(secret + "\n")
        return secret
