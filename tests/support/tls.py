"""A registry's service with TLS, and certificates for it: real sockets, a registry in memory, a folder for keys.

Whatever a test needs beside what the service gives it makes with the library itself, so that nothing of ours says what a good or bad
certificate is.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import secrets
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509 as library
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from netregistry import credentials
from netregistry.authority import key_files, x509
from netregistry.client import Client
from netregistry.credentials import Credentials
from netregistry.service.limits import Limits
from netregistry.service.tls import Listening
from tests.support.service import SECONDS, Said, Served, served

NAMES = ("localhost", "127.0.0.1")


class Shown(NamedTuple):
    """What somebody shows: files of a key with a certificate, and of whom he trusts."""

    identity: str
    trusted: str

    def context(self) -> ssl.SSLContext:
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        found.load_verify_locations(self.trusted)
        if self.identity:
            found.load_cert_chain(self.identity)
        return found


class Secured:
    """A service that is reached by TLS. ``local``: over its UNIX socket; ``folder``: where tests may keep files."""

    def __init__(self, local: Served, port: int, keys: str, folder: Path) -> None:
        self.local, self.port, self.keys, self.folder = local, port, keys, folder
        self.url = f"https://localhost:{port}"

    def rotate(self) -> str:
        """Let another authority sign; give its id."""
        items = self.local.client().get("authorities").body["items"]
        before = None
        if items:
            authority = x509.read_authority(items[-1]["authority"]["certificate"])
            before = authority, key_files.key(self.keys, authority.id)
        made = x509.make_authority(self.local.service.registry.local.core.now(), before)
        key_files.keep(self.keys, made)
        body = {"certificate": made.authority.certificate, "cross": made.authority.cross}
        self.local.client().change("POST", "authorities", body)
        return made.authority.id

    @property
    def trusted(self) -> str:
        """Give a file of the authorities that count."""
        items = self.local.client().get("authorities").body["items"]
        path = self.folder / f"trusted-{secrets.token_hex(4)}.pem"
        path.write_text("".join(item["authority"]["certificate"] for item in items))
        return str(path)

    def token(self, role: str, name: str = "", seconds: float = 3600.0) -> tuple[str, str]:
        """Make a token; give its id and its secret."""
        label, secret = secrets.token_hex(4), secrets.token_hex(16)
        body = {"id": label, "proof": hashlib.sha256(secret.encode()).hexdigest(), "role": role, "name": name, "seconds": seconds}
        self.local.client().change("POST", "tokens", body)
        return label, secret

    def joining(self, token: tuple[str, str], key: str, uuid: str = "", name: str = "") -> dict[str, Any]:
        node = {"node": {"uuid": uuid, "name": name or f"node-{uuid[:8]}"}} if uuid else {}
        return {"token": token[0], "secret": token[1], "request": x509.make_request(key), **node}

    def join(self, role: str, name: str, new: bool = True) -> Credentials:
        """Let somebody join, into a folder of his own. ``new``: of a node, it has not joined before."""
        token = self.token(role, "" if role == "node" and new else name)
        key = x509.make_key()
        said = self.say("POST", "/v1/join", self.joining(token, key, name if role == "node" else ""), Shown("", self.trusted))
        assert said.status == 201, said
        lib = self.folder / f"lib-{secrets.token_hex(4)}"
        lib.mkdir()
        return credentials.keep(str(lib), said.body, key, [self.url], role)

    def client(self, one: Credentials, seconds: float = SECONDS) -> Client:
        return Client(one.places(), seconds=seconds)

    def shown(self, one: Credentials) -> Shown:
        return Shown(f"{one.folder}/{credentials.IDENTITY}", f"{one.folder}/{credentials.AUTHORITIES}")

    def say(self, method: str, target: str, body: Any, shown: Shown, **headers: str) -> Said:
        """Send one request without our client; ``headers`` with _ for -."""
        connection = HTTPSConnection("localhost", self.port, timeout=SECONDS, context=shown.context())
        try:
            given = {name.replace("_", "-"): text for name, text in headers.items()}
            data = None if body is None else json.dumps(body).encode()
            if data is not None:
                given["Content-Type"] = "application/json"
            connection.request(method, target, data, given)
            response = connection.getresponse()
            found = response.read()
            shown_body = json.loads(found) if response.headers.get_content_type().endswith(("/json", "+json")) and found else found
            return Said(response.status, shown_body, dict(response.headers.items()))
        finally:
            connection.close()

    @contextmanager
    def opened(self, target: str, shown: Shown) -> Iterator[HTTPResponse]:
        """Give an answer that is still to be read."""
        connection = HTTPSConnection("localhost", self.port, timeout=SECONDS, context=shown.context())
        try:
            connection.request("GET", target)
            with connection.getresponse() as response:
                yield response
        finally:
            connection.close()

    def connected(self, one: Credentials) -> ssl.SSLSocket:
        """Give a connection by a certificate, on which nothing was asked yet: whoever asks closes it."""
        made = self.shown(one).context().wrap_socket(socket.create_connection(("localhost", self.port)), server_hostname="localhost")
        made.settimeout(SECONDS)
        return made

    def counted(self, reason: str) -> int:
        """Give how many were turned away for a reason, as /metrics says."""
        text = self.local.say("GET", "/metrics").body.decode()
        (line,) = [line for line in text.splitlines() if line.startswith(f'netregistry_turned_away_total{{reason="{reason}"}}')]
        return int(line.split()[-1])

    @property
    def lines(self) -> list[str]:
        return self.local.log.lines


def status_of(each: socket.socket) -> int:
    """Ask on an open connection what the service can do, and give the status of the answer, a JSON object."""
    each.sendall(b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    said = each.recv(1 << 16)
    while said and not said.endswith(b"}"):  # the head may come by itself
        said += each.recv(1 << 16)
    return int(said[9:12] or 0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def secured(folder: Path, limits: Limits | None = None, names: tuple[str, ...] = NAMES, **more: Any) -> Iterator[Secured]:
    """Serve a registry with an authority, on this machine's loopback."""
    port, keys = free_port(), str(folder / "authority")
    listening = Listening((("127.0.0.1", port),), names, keys)
    with served(folder, limits, others=listening, **more) as local:
        found = Secured(local, port, keys, folder)
        found.rotate()
        local.until(lambda: local.service.figures.until > 0)
        yield found


def forged(
    folder: Path,
    uri: str = "urn:netcommon:operator:mallory",
    by: tuple[str, str] | None = None,
    begin: float = -3600.0,
    end: float = 3600.0,
    issuer: str = "",
    more: str = "",
) -> str:
    """Write a key with a certificate that the library makes; give the file.

    ``by``: the certificate and the key (PEM) of who signs it, itself without; times in seconds from now on. ``more``: certificates (PEM)
    that are shown beside.
    """
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = library.Name([library.NameAttribute(NameOID.COMMON_NAME, "operator")])
    signer = serialization.load_pem_private_key(by[1].encode(), None) if by else key
    issued_by = library.load_pem_x509_certificate(by[0].encode()).subject if by else name
    if issuer:
        issued_by = library.Name([library.NameAttribute(NameOID.COMMON_NAME, issuer)])
    made = (
        library.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issued_by)
        .public_key(key.public_key())
        .serial_number(library.random_serial_number())
        .not_valid_before(now + datetime.timedelta(seconds=begin))
        .not_valid_after(now + datetime.timedelta(seconds=end))
        .add_extension(library.SubjectAlternativeName([library.UniformResourceIdentifier(uri)]), critical=False)
        .add_extension(library.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)  # type: ignore[arg-type]
        .sign(signer, hashes.SHA256())  # type: ignore[arg-type]
    )
    pem = serialization.Encoding.PEM
    data = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()) + made.public_bytes(pem)
    path = folder / f"forged-{secrets.token_hex(4)}.pem"
    path.write_bytes(data + more.encode())
    return str(path)


def forged_authority(name: str, by: tuple[str, str]) -> tuple[str, str]:
    """Give the certificate and the key (PEM) of an authority of this name (CN), signed by another one: its certificate and key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    signer = serialization.load_pem_private_key(by[1].encode(), None)
    made = (
        library.CertificateBuilder()
        .subject_name(library.Name([library.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(library.load_pem_x509_certificate(by[0].encode()).subject)
        .public_key(key.public_key())
        .serial_number(library.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(library.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(library.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(signer, hashes.SHA256())  # type: ignore[arg-type]
    )
    pem = serialization.Encoding.PEM
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    return made.public_bytes(pem).decode(), text
