"""Read the address of an etcd: its members, and by what both sides are sure of each other.

``etcd://HOST[:PORT],HOST[:PORT],...?ca=FILE&cert=FILE&key=FILE&user=NAME&password=FILE``. With ``ca`` it is spoken to by TLS; without it
only on the machine itself, where nobody listens in.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from runtime.errors import HostRefused, escaped

SCHEME = "etcd://"
PORT = 2379
EXPECTED = "etcd://HOST:PORT,HOST:PORT,[IPV6]:PORT?ca=FILE&cert=FILE&key=FILE&user=NAME&password=FILE"
FILES = ("ca", "cert", "key", "password")
FORM = re.compile(r"etcd://(?P<members>[^/?#]+)/?(\?(?P<more>[^#]*))?")
LONGEST_PASSWORD = 4096  #: bytes
MOST = 16  #: members


class Endpoint(NamedTuple):
    """Say where one member answers."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Place(NamedTuple):
    """An etcd: its members, the files of its TLS, and who asks. ``password``: the file that holds it. "": none."""

    endpoints: tuple[Endpoint, ...]
    ca: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        return f"etcd at {', '.join(map(str, self.endpoints))}"


def is_etcd(text: str) -> bool:
    """Tell whether a store is named that is an etcd, and no file."""
    return text.startswith(SCHEME)


def place(text: str) -> Place:
    """Read an address. Raises HostRefused for what is none, and for one by which passwords and the registry would go in the clear."""
    form = FORM.fullmatch(text) if text.isascii() and text.isprintable() else None
    if form is None:
        raise _refused(text, "it is no such address")
    try:
        given = parse_qsl(form["more"] or "", keep_blank_values=True, strict_parsing=bool(form["more"]))
        endpoints = tuple(_endpoint(each) for each in form["members"].split(","))
    except ValueError as error:
        raise _refused(text, str(error)) from None
    names = [name for name, _value in given]
    if len(endpoints) > MOST:
        raise _refused(text, f"it has more than {MOST} members")
    if len(set(endpoints)) != len(endpoints):
        raise _refused(text, "one member is named twice")
    if len(set(names)) != len(names) or set(names) - {*FILES, "user"}:
        raise _refused(text, f"of {', '.join((*FILES, 'user'))} each may be given once, and nothing else")
    found = Place(endpoints, **dict(given))
    for name in FILES:
        if (path := getattr(found, name)) and not os.path.isabs(path):
            raise _refused(text, f"{name} is the absolute path of a file")
    if bool(found.cert) != bool(found.key) or bool(found.user) != bool(found.password):
        raise _refused(text, "cert goes with key, and user with password")
    if found.cert and not found.ca:
        raise _refused(text, "cert and key go with ca")
    far = [each.host for each in endpoints if not _near(each.host)]
    if far and not found.ca:
        raise HostRefused(f"{escaped(far[0])} is another machine, and without TLS everybody between could read and write", "add ca=FILE")
    return found


def _refused(text: str, why: str) -> HostRefused:
    return HostRefused(f"{escaped(text)} names no etcd: {why}", f"expected {EXPECTED}")


def _endpoint(text: str) -> Endpoint:
    if text.count(":") > 1 and "[" not in text:
        raise ValueError(f"{escaped(text)} is no HOST:PORT: an IPv6 address stands in brackets, [2001:db8::1]:{PORT}")
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"{escaped(text)} is no HOST:PORT") from None
    if not host or parts.username is not None or parts.password is not None or port == 0:
        raise ValueError(f"{escaped(text)} is no HOST:PORT")
    if ":" in host:
        host = str(ipaddress.IPv6Address(host))
    elif not all(character.isalnum() or character in ".-" for character in host):
        raise ValueError(f"{escaped(host)} is no name of a host")
    return Endpoint(host, port or PORT)


def _near(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def password_of(found: Place) -> str:
    """Give the password: what its file holds but for one end of line. Raises HostRefused where others could read it too."""
    try:
        with open(found.password, "rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise HostRefused(f"{escaped(found.password)} can be read by others than its owner", f"chmod 600 {escaped(found.password)}")
            data = file.read(LONGEST_PASSWORD + 1)
        text = data.removesuffix(b"\n").removesuffix(b"\r").decode()
    except OSError as error:
        raise HostRefused(f"cannot read the password in {escaped(found.password)}: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
    if not 0 < len(text) <= LONGEST_PASSWORD or not text.isprintable():
        raise HostRefused(f"{escaped(found.password)} holds no password", "expected one line, which is all of it")
    return text


def context_of(found: Place) -> ssl.SSLContext | None:
    """Give what TLS is spoken by; None where it is not. Raises HostRefused for files that cannot be used."""
    if not found.ca:
        return None
    at = found.ca
    try:
        made = ssl.create_default_context(cafile=found.ca)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        # as before Python 3.13, which refuses authorities without keyUsage: sites have such, and they are no weaker
        made.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if found.cert:
            at = f"{found.cert}, {found.key}"
            made.load_cert_chain(found.cert, found.key, password=_no_password)
    except OSError as error:  # ssl.SSLError is one
        raise HostRefused(f"cannot use the certificate in {escaped(at)}: {error.strerror or error}") from None
    return made


def _no_password() -> str:
    """Answer for a key that is encrypted, which nobody could open at a start: OpenSSL would ask the terminal."""
    return ""
