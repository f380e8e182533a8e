"""Keep what a machine shows a registry: a key that never leaves it, its certificate, the authorities it trusts, and where the registry is.

There is a folder of root's own for each role that the machine has: /var/lib/netcommon/certificates/ROLE. ``identity.pem`` is the key and
the certificate, replaced at once; ``authorities.pem`` whom to trust; ``joined.json``, written last, makes it one that counts.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import math
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.reach import NoAddress, Places, TlsPlace, parsed
from runtime.errors import HostRefused, NetcommonError, RecordTooNew, RecordUnreadable
from runtime.folder import Folder
from runtime.jsontext import dumps, versioned

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping, Sequence

    from netregistry.client import Client

FOLDER = "certificates"  #: below /var/lib/netcommon
IDENTITY, AUTHORITIES, JOINED = "identity.pem", "authorities.pem", "joined.json"
SCHEMA = 1
LONGEST = 1 << 16  #: bytes of one file
RENEWED = 2 / 3  #: of its time a certificate is used before it is renewed
MOST = 16  #: addresses; authorities
LONGEST_NAME = 255
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class Credentials(NamedTuple):
    """What a machine has joined as. ``lib``: /var/lib/netcommon; ``addresses``: of the registry's services; times in seconds since 1970."""

    lib: str
    role: str
    name: str
    addresses: tuple[str, ...]
    since: float
    until: float
    authority: str

    @property
    def folder(self) -> str:
        return f"{self.lib}/{FOLDER}/{self.role}"

    @property
    def looked(self) -> float:
        """Give when the registry was last asked which authorities count; 0 where that cannot be told."""
        try:
            return os.stat(f"{self.folder}/{AUTHORITIES}").st_mtime
        except OSError:
            return 0.0

    @property
    def renewal(self) -> float:
        """Give when the certificate is to be renewed: well before its end."""
        return self.since + (self.until - self.since) * RENEWED

    def due(self, now: float, signs: str = "") -> bool:
        """Tell whether the certificate is to be renewed: well before its end, or when another authority signs (``signs``)."""
        return now >= self.renewal or (signs not in ("", self.authority))

    def places(self, instead: Sequence[str] = ()) -> Places:
        """Give where the registry is reached. ``instead``: other addresses than those of the join. Raises NoAddress."""
        return Places(TlsPlace(*parsed(each), self._context) for each in instead or self.addresses)

    def _context(self) -> ssl.SSLContext:
        """Read the files as they are now: they are renewed while others ask."""
        try:
            found = trusting(f"{self.folder}/{AUTHORITIES}")
            found.load_cert_chain(f"{self.folder}/{IDENTITY}")
        except OSError as error:  # ssl.SSLError is one
            what = f"what this machine has joined a registry with, in {self.folder}, cannot be used: {error.strerror or error}"
            raise HostRefused(what, "netcommon registry join URL TOKEN makes it anew") from None
        return found


def trusting(authorities: str = "", text: str = "") -> ssl.SSLContext:
    """Give what trusts the authorities in a file, or in ``text``, alone. Raises OSError."""
    import ssl  # a node whose registry is on the same machine need not have it in memory

    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.minimum_version = ssl.TLSVersion.TLSv1_3
    found.load_verify_locations(cafile=authorities or None, cadata=text or None)
    return found


def read(lib: str, role: str) -> Credentials | None:
    """Read what this machine has joined as, in a role; None where it has not. Raises HostRefused where it cannot be used."""
    folder = Folder.find(f"{lib}/{FOLDER}/{role}")
    if folder is None:
        return None
    with folder:
        try:
            data = folder.read(JOINED, LONGEST)
            return None if data is None else _parsed(lib, role, data)
        except (RecordTooNew, RecordUnreadable) as error:
            what = f"{folder.path}/{JOINED} does not say what this machine has joined as: {error}"
            raise HostRefused(what, "netcommon registry join URL TOKEN makes it anew") from None


def _parsed(lib: str, role: str, data: bytes) -> Credentials:
    stored = versioned(data, SCHEMA)
    addresses = stored.get("addresses")
    if not isinstance(addresses, list) or not 0 < len(addresses) <= MOST or not all(isinstance(each, str) for each in addresses):
        raise RecordUnreadable("no addresses of a registry")
    try:
        for each in addresses:
            parsed(each)
    except NoAddress as error:
        raise RecordUnreadable(str(error)) from None
    texts, times = (stored.get("name"), stored.get("authority")), (stored.get("since"), stored.get("until"))
    if not all(isinstance(each, str) for each in texts) or not all(isinstance(each, (int, float)) for each in times):
        raise RecordUnreadable("no name, authority or times")
    return Credentials(lib, role, stored["name"], tuple(addresses), float(stored["since"]), float(stored["until"]), stored["authority"])


def keep(lib: str, issued: Mapping[str, Any], key: str, addresses: Sequence[str], role: str, name: str = "") -> Credentials:
    """Keep what a join has given, to outlive a power failure. Raises HostRefused.

    ``issued``: the service's answer, which may say no other ``role`` and ``name`` than were asked for; "" for a name that the token says.
    """
    found, certificate = _of(lib, issued, addresses, role, name)
    there = _authorities(issued.get("authorities"))
    with _alone(found.folder) as folder:
        os.fchmod(folder.descriptor, 0o700)
        folder.remove(JOINED)  # a machine that is cut off between has joined as nobody
        folder.flush()
        folder.write(IDENTITY, (key + certificate).encode("ascii"), sync=True)
        folder.write(AUTHORITIES, there, sync=True)
        _write(folder, found)
    return found


def refresh(one: Credentials, asked: Client, now: float) -> Credentials:
    """Take over what authorities count, and renew the certificate where that is due, for the same key.

    What was there is used until it is replaced, and each file at once: at any moment there is one that counts. So one that is worse is not
    taken, such as a service gives whose clock is wrong. Where the machine has joined
    anew, or another process has renewed, while the registry was asked, that stays, and is given.

    Raises as the client does, and HostRefused, also where what was given begins later.
    """
    with Folder.make(one.folder) as folder:
        key = _key(folder)
    try:
        items = asked.get("authorities").body["items"]
        certificates = [item["authority"]["certificate"] for item in items]
        signs = "".join([str(item["authority"]["id"]) for item in items if item["signs"]][-1:])
    except (KeyError, TypeError, IndexError):
        raise HostRefused("the registry's authorities cannot be read, and those that are known stay") from None
    there = _authorities(certificates) if certificates else b""
    issued = _of(one.lib, asked.change("POST", "certificates").body, one.addresses, one.role, one.name) if one.due(now, signs) else None
    with _alone(one.folder) as folder:
        latest = read(one.lib, one.role)
        if latest is None:
            raise HostRefused(f"a join that was not finished has begun in {folder.path} meanwhile", "netcommon registry join URL TOKEN")
        if latest != one or _key(folder) != key:
            return latest  # what was asked for is of before
        if there:
            folder.write(AUTHORITIES, there, sync=True)  # also as it was: its time tells when it was looked at
        if issued is None:
            return one
        found, certificate = issued
        if found.since > now:
            what = f"the one that was given begins {found.since - now:.0f} s later, and the present one stays: a clock is wrong"
            raise HostRefused(what, "set the clock of the registry's machine, or of this one")
        if found.until <= (one.until if found.authority == one.authority else now):
            return one  # asked for again later, when it would end later
        folder.write(IDENTITY, (key + certificate).encode("ascii"), sync=True)
        _write(folder, found)
    with contextlib.suppress(NetcommonError):  # it is kept, and the next one who asks does it
        asked.close()
        asked.get("")  # by another connection: the registry knows from then on that this machine has it
    return found


@contextlib.contextmanager
def _alone(path: str) -> Iterator[Folder]:
    """Open the folder of a role, made if need be, while no other process writes there: its files are of one join. Raises HostRefused."""
    with Folder.make(path, sync=True) as folder:
        fcntl.flock(folder.descriptor, fcntl.LOCK_EX)  # nobody holds it for longer than it takes to write three files
        yield folder


def _key(folder: Folder) -> str:
    """Give the key that a machine shows the registry; "" for none. Raises HostRefused, RecordUnreadable."""
    return (folder.read(IDENTITY, LONGEST) or b"").decode("ascii", "replace").partition(BEGIN)[0]


def encoded(text: Any) -> bytes:
    """Give the one certificate (DER) that a text is, in PEM, and nothing else. Raises ValueError.

    Libraries take what they find of a text, and not all of them the same: OpenSSL each of several, Python what comes before a padding.
    """
    lines = text.strip().split("\n") if isinstance(text, str) and len(text) <= LONGEST else [""]
    if lines[0] != BEGIN or lines[-1] != END or len(lines) < 3:
        raise ValueError("no certificate in PEM")
    return base64.b64decode("".join(lines[1:-1]), validate=True)


def pem(certificate: bytes) -> str:
    """Give a certificate (DER) in PEM."""
    import ssl

    return ssl.DER_cert_to_PEM_cert(certificate)


def _authorities(certificates: Any) -> bytes:
    """Give what is to be trusted, as it is kept. Raises HostRefused for what cannot be read: nobody would be trusted."""
    try:
        if not isinstance(certificates, list) or not 0 < len(certificates) <= MOST:
            raise ValueError
        text = "".join(pem(encoded(each)) for each in certificates)
        trusting(text=text)
    except (OSError, ValueError):
        raise HostRefused("the registry's authorities cannot be read, and those that are known stay") from None
    return text.encode("ascii")


def _of(lib: str, issued: Mapping[str, Any], addresses: Sequence[str], role: str, name: str) -> tuple[Credentials, str]:
    """Read what was given for a role and a name ("" for any); with it the certificate. Raises HostRefused."""
    called, times, authority = issued.get("name"), (issued.get("since"), issued.get("until")), issued.get("authority")
    try:
        certificate = pem(encoded(issued.get("certificate")))
        since, until = (float(each) for each in times if isinstance(each, (int, float)) and math.isfinite(each))
        if issued.get("role") != role or not isinstance(called, str) or called != (name or called):
            raise ValueError
        if not 0 < len(called) <= LONGEST_NAME or not (called.isascii() and called.isprintable()) or not isinstance(authority, str):
            raise ValueError
    except (ValueError, OverflowError):
        raise HostRefused("the registry's answer gives no certificate, or not the one that was asked for") from None
    return Credentials(lib, role, called, tuple(addresses), since, until, authority), certificate


def _write(folder: Folder, one: Credentials) -> None:
    said = {name: value for name, value in one._asdict().items() if name not in ("lib", "role")}
    folder.write(JOINED, dumps({"schema": SCHEMA, **said}).encode("ascii") + b"\n", sync=True)
