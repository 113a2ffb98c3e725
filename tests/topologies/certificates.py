"""Certificates for a server on this machine and for its clients, made by OpenSSL for one test run."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """Files in PEM: who is trusted, and one certificate with its key, for both sides."""

    directory: Path

    @property
    def authority(self) -> Path:
        return self.directory / "cert.pem"

    @property
    def certificate(self) -> Path:
        return self.directory / "cert.pem"

    @property
    def key(self) -> Path:
        return self.directory / "key.pem"

    @property
    def server_options(self) -> list[str]:
        """For a server that asks its clients for a certificate too."""
        return [
            *("--tls-cert-file", str(self.certificate), "--tls-key-file", str(self.key)),
            *("--tls-ca-cert-file", str(self.authority), "--tls-auth-clients", "yes"),
        ]

    @property
    def client_options(self) -> dict[str, str]:
        """For `lease_url_options`."""
        return {
            "ssl_ca_certs": str(self.authority),
            "ssl_certfile": str(self.certificate),
            "ssl_keyfile": str(self.key),
        }


def make_certificates(directory: Path) -> Certificates:
    """A certificate for 127.0.0.1 that vouches for itself."""
    made = Certificates(directory)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(made.key), "-out", str(made.certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return made
