"""Join a registry by a token: ROLE.ID.SECRET.FINGERPRINT, as netcommon registry token create prints it.

The key is made here, and stays here. Whoever answers must have the authority whose fingerprint the token carries, before he is told the
token's secret: as kubeadm does it.
"""

from __future__ import annotations

import hashlib
import secrets
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry import credentials
from netregistry.authority import GET_IT, LIBRARY
from netregistry.client import Client
from netregistry.model.certificate import HEX
from netregistry.reach import Places, TlsPlace, parsed
from netregistry.roles import HOLDERS
from runtime.errors import USAGE, HostRefused, NetcommonError, RecordTooNew, RecordUnreadable, escaped
from runtime.folder import Folder
from runtime.jsontext import dumps, versioned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from netregistry.credentials import Credentials

SECONDS = 30.0
#: Below /var/lib/netcommon: the UUID, made for it, under which this machine has begun to join, until a registry has answered.
BEGUN = "joining.json"
SCHEMA = 1
LONGEST = 100 << 10  #: bytes of an answer of whom nobody trusts yet; two authorities take a few thousand


class NoToken(NetcommonError):
    """A text is no token."""

    status = USAGE


class Token(NamedTuple):
    """A token. ``fingerprint``: SHA-256 of the authority's certificate."""

    role: str
    id: str
    secret: str
    fingerprint: str

    def __str__(self) -> str:
        return ".".join(self)

    @property
    def proof(self) -> str:
        """What the registry keeps of it."""
        return hashlib.sha256(self.secret.encode("ascii")).hexdigest()


def make(role: str, fingerprint: str) -> Token:
    """Make a token that the registry does not know yet."""
    return Token(role, secrets.token_hex(4), secrets.token_hex(16), fingerprint)


def read(text: str) -> Token:
    """Read a token. Raises NoToken."""
    parts = text.strip().split(".")
    if len(parts) == 4 and parts[0] in HOLDERS and [len(each) for each in parts[1:]] == [8, 32, 64] and HEX.issuperset("".join(parts[1:])):
        return Token(*parts)
    raise NoToken(f"{escaped(text[:20])} is no token: expected the whole line that netcommon registry token create prints")


def join(
    lib: str, urls: Sequence[str], token: Token, node: Mapping[str, Any] | None, ready: Callable[[], None] = lambda: None
) -> Credentials:
    """Join, and keep what comes of it below ``lib``. Raises HostRefused, and as the client does.

    ``node``: what a node is. ``ready``: called once the registry was found, before it is asked to let us join.
    """
    make_key, make_request = _makers()
    trusted = _trusted(urls, token)
    key = make_key()
    body = {"token": token.id, "secret": token.secret, "request": make_request(key), **({"node": node} if node else {})}
    places = Places(TlsPlace(*parsed(url), lambda: credentials.trusting(text=trusted)) for url in urls)
    ready()
    with Client(places, seconds=SECONDS) as client:
        issued = client.change("POST", "join", body).body
    return credentials.keep(lib, issued, key, urls, token.role, str(node["uuid"]) if node else "")


def begin(lib: str, uuid: str) -> None:
    """Keep under which UUID this machine begins to join, to outlive a power failure. Raises HostRefused."""
    with Folder.make(lib, sync=True) as folder:
        folder.write(BEGUN, dumps({"schema": SCHEMA, "uuid": uuid}).encode("ascii") + b"\n", sync=True)


def begun(lib: str) -> str:
    """Give the UUID under which a join has begun that nobody has answered; "" for none. Raises HostRefused."""
    folder = Folder.find(lib)
    if folder is None:
        return ""
    with folder:
        try:
            data = folder.read(BEGUN, credentials.LONGEST)
            return "" if data is None else str(versioned(data, SCHEMA).get("uuid", ""))
        except (RecordTooNew, RecordUnreadable):
            return ""  # then it is who node.json says


def over(lib: str) -> None:
    """Keep no more that a join has begun: it is answered. Raises HostRefused."""
    folder = Folder.find(lib)
    if folder is not None:
        with folder:
            if folder.remove(BEGUN):
                folder.flush()


def _trusted(urls: Sequence[str], token: Token) -> str:
    """Give the authority (PEM) that the token tells of, from whoever answers: it is held against the fingerprint. Raises HostRefused."""
    places = Places(TlsPlace(*parsed(url), _unchecked) for url in urls)
    with Client(places, seconds=SECONDS, longest=LONGEST) as client:
        body = client.get("authorities").body
    items = body.get("items") if isinstance(body, dict) else None
    for item in items if isinstance(items, list) else ():
        try:
            certificate = credentials.encoded(item["authority"]["certificate"])
        except (ValueError, TypeError, KeyError, IndexError):  # whoever answers may be anybody
            continue
        if secrets.compare_digest(hashlib.sha256(certificate).hexdigest(), token.fingerprint):
            return credentials.pem(certificate)  # what was hashed, and nothing that stood beside it
    what = f"{', '.join(urls)} is not the registry that has made this token: its authority has another fingerprint"
    raise HostRefused(what, "look at the address; if the authority was rotated since, netcommon registry token create makes another")


def _unchecked() -> ssl.SSLContext:
    """Give what trusts everybody: nothing secret is said to him."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.minimum_version = ssl.TLSVersion.TLSv1_3
    found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    return found


def _makers() -> Any:
    try:
        from netregistry.authority.x509 import make_key, make_request
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != LIBRARY:
            raise
        raise HostRefused(f"to join needs {LIBRARY}", GET_IT) from None
    return make_key, make_request
