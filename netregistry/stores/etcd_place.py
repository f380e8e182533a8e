"""Say where an etcd is, and read the files that its address names; netcommon.settings.etcd_address reads the address itself."""

from __future__ import annotations

import os
import ssl
from typing import NamedTuple

from netcommon.settings.etcd_address import SCHEME, InTheClear, NoAddress, parsed
from runtime.errors import HostRefused, escaped

EXPECTED = "etcd://HOST:PORT,HOST:PORT,[IPV6]:PORT?ca=FILE&cert=FILE&key=FILE&user=NAME&password=FILE"
LONGEST_PASSWORD = 4096  #: bytes


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
    try:
        found = parsed(text)
    except InTheClear as error:
        what = f"{escaped(error.host)} is another machine, and without TLS everybody between could read and write"
        raise HostRefused(what, "add ca=FILE") from None
    except NoAddress as error:
        raise HostRefused(f"{escaped(text)} names no etcd: {error}", f"expected {EXPECTED}") from None
    return Place(tuple(Endpoint(*each) for each in found.members), **found.given)


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
