"""A certificate for 127.0.0.1, which is its own CA. The standard library cannot make one."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(folder: Path, name: str = "server") -> tuple[Path, Path]:
    """The files of the certificate and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run(
        [*command, *subject, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    return certificate, key
