"""Certificates for a test, made by Debian's openssl: an authority, a server on 127.0.0.1, a client; and an authority of somebody else."""

from __future__ import annotations

import subprocess
from pathlib import Path

DAYS = "2"


def authority(folder: Path, host: str = "IP:127.0.0.1") -> Path:
    """Make ca.pem, server.pem with server-key.pem for a host, cert.pem with key.pem; give the folder."""
    folder.mkdir(mode=0o700)
    _openssl(folder, "req", "-x509", *_key("ca-key.pem"), "-out", "ca.pem", "-days", DAYS, "-subj", "/CN=authority")
    for name, key, who in (("server.pem", "server-key.pem", "etcd"), ("cert.pem", "key.pem", "registry")):
        (folder / "ext").write_text(f"subjectAltName={host}\nextendedKeyUsage=serverAuth,clientAuth\n")
        _openssl(folder, "req", *_key(key), "-out", "request", "-subj", f"/CN={who}")
        signing = ["-req", "-in", "request", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial"]
        _openssl(folder, "x509", *signing, "-out", name, "-days", DAYS, "-extfile", "ext")
    return folder


def _key(file: str) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", file]


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
