"""Certificates for tests, made by openssl when they are needed."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that stands for itself, and its private key, as PEM files; ``both`` has the two in one."""

    certificate: Path
    key: Path
    both: Path


def make_certificate(directory: Path, name: str, alternative: str = "IP:127.0.0.1") -> Certificate:
    made = Certificate(directory / f"{name}.crt", directory / f"{name}.key", directory / f"{name}.pem")
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={alternative}"]
    files = ["-keyout", str(made.key), "-out", str(made.certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    made.both.write_text(made.key.read_text() + made.certificate.read_text())
    return made
