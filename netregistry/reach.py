"""Reach a registry's service: over the UNIX socket of its machine, or by TLS at one of several addresses, the next where one fails."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from runtime.errors import USAGE, HostRefused, NetcommonError, TryAgain, escaped

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

PORT = 8931
CONNECTING = 5.0  #: seconds for one address; the next is tried then
START = "systemctl start netcommon-registry starts it, netcommon registry init makes a registry the first time"
REJOIN = "join again: netcommon registry token create on the registry's machine, then netcommon registry join URL TOKEN here"

#: What the other side says of our certificate (its alert, RFC 8446, 6.2), by OpenSSL's name for it.
ALERTS = {
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this machine's certificate has ended, or the clocks are more than five minutes apart",
    "SSLV3_ALERT_BAD_CERTIFICATE": "this machine's certificate is not taken",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "this machine's certificate is not taken",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "this machine's certificate is not for that",
    "TLSV1_ALERT_DECRYPT_ERROR": "this machine's certificate is not taken",
    "TLSV1_ALERT_UNKNOWN_CA": "this machine's certificate is of no authority that counts there",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "this machine has no certificate",
}
#: X509_V_ERR of OpenSSL: what is wrong with the other side's, and what helps.
VERDICTS = {
    9: "its certificate begins later",
    10: "its certificate has ended",
    62: "its certificate is for other names",
    64: "its certificate is for other addresses",
}
VERDICTS_HELP = {
    9: "set the clocks of both machines; where they are right, its authority was made while its clock was fast, and netcommon registry "
    "authority rotate on its machine makes another, and token create a token for that",
    10: "set the clocks of both machines, or look at its log",
    62: "[registry] names, on its machine, says for which",
    64: "[registry] names, on its machine, says for which",
}
#: A service that cannot let anybody in yet, or no more, ends connections before TLS begins, and says why on its own machine alone.
ENDED = "if it does so again, journalctl -u netcommon-registry on its machine says why: the key of its authority may be missing there"
UNKNOWN = "its certificate is of no authority that this machine knows, so it is not the registry, or another one by now"


class NoAddress(NetcommonError):
    """A registry's address is none."""

    status = USAGE


class NoCertificate(HostRefused):
    """Say that this machine's certificate is not taken, or that the other side's is of no authority that it came with."""

    advice = ""


class NoCertificateYet(TryAgain, NoCertificate):
    """Say so of some places alone: others could not be asked for now."""


class Place(Protocol):
    """One place where a service may be. ``shown``: for people; ``says_role``: as whom one asks is said there, for no certificate does."""

    @property
    def shown(self) -> str: ...

    @property
    def says_role(self) -> bool: ...

    def connection(self, seconds: float) -> Connection:
        """Give a connection that has not begun."""

    def wrong(self, error: Exception) -> NetcommonError:
        """Give what is to be said of an error: what is wrong, and what helps."""


class UnixPlace(NamedTuple):
    """A service on this machine."""

    path: str

    @property
    def shown(self) -> str:
        return self.path

    @property
    def says_role(self) -> bool:
        return True

    def connection(self, seconds: float) -> Connection:
        return _UnixConnection(self.path, seconds)

    def wrong(self, error: Exception) -> NetcommonError:
        if isinstance(error, FileNotFoundError):
            return HostRefused(f"no registry is served on {self.path}", START)
        if isinstance(error, ConnectionRefusedError):
            return HostRefused(f"nobody listens on {self.path} any more", START)
        if isinstance(error, PermissionError):
            return HostRefused("the registry's socket is for root alone", "run it as root")
        return TryAgain(f"the registry on {self.path} has not answered: {words(error)}")


class TlsPlace(NamedTuple):
    """A service elsewhere. ``context``: makes what says who we are, and whom we trust; raises HostRefused."""

    host: str
    port: int
    context: Callable[[], ssl.SSLContext]

    @property
    def shown(self) -> str:
        return f"https://[{self.host}]:{self.port}" if ":" in self.host else f"https://{self.host}:{self.port}"

    @property
    def says_role(self) -> bool:
        return False

    def connection(self, seconds: float) -> Connection:
        return _TlsConnection(self.host, self.port, seconds, self.context())

    def wrong(self, error: Exception) -> NetcommonError:
        import ssl

        if isinstance(error, ssl.SSLCertVerificationError):
            if error.verify_code not in VERDICTS:
                return NoCertificate(f"{self.shown}: {UNKNOWN}", REJOIN)
            return HostRefused(f"{self.shown}: {VERDICTS[error.verify_code]}", VERDICTS_HELP[error.verify_code])
        if isinstance(error, ssl.SSLError) and error.reason in ALERTS:
            return NoCertificate(f"{self.shown}: {ALERTS[error.reason]}", REJOIN)
        if isinstance(error, (ssl.SSLZeroReturnError, ssl.SSLEOFError, ConnectionResetError)):
            return TryAgain(f"{self.shown}: it has ended the connection; {ENDED}")
        if isinstance(error, ssl.SSLError):
            return TryAgain(f"{self.shown}: it does not speak TLS 1.3 as we do: {error.reason or words(error)}")
        return TryAgain(f"{self.shown}: {words(error)}")


class Places:
    """Where services may be, the one that was last of use first. For any thread."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._places = tuple(places)
        self._first = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._places)

    @property
    def first(self) -> Place:
        return self._places[self._first]

    def failed(self, place: Place) -> None:
        """Go on to the next one; unless somebody has."""
        with self._lock:
            if self._places[self._first] is place:
                self._first = (self._first + 1) % len(self._places)


class Connection(http.client.HTTPConnection):
    """A connection on which an answer is waited for ``seconds``; of one that comes in parts, each part is."""

    def __init__(self, host: str, port: int | None, seconds: float) -> None:
        super().__init__(host, port, timeout=seconds)
        self._seconds = seconds
        self._made: Any = None  # a socket of ours

    def wait(self) -> None:
        """Wait for an answer, or for its next part, from now on."""
        if self._made is not None and self._made.fileno() >= 0:
            self._made.until = time.monotonic() + self._seconds
            self._made.settimeout(self._seconds)


class _Socket(socket.socket):
    """A socket from which something whole has to come until a time: a timeout alone would begin anew with each part of it."""

    until = 0.0  #: monotonic seconds

    def recv_into(self, *given: Any) -> int:
        self.settimeout(_left(self.until))
        return super().recv_into(*given)


@cache
def _tls_socket() -> type[ssl.SSLSocket]:
    """Give the same by TLS, whose module not everybody needs in memory."""
    import ssl

    class TlsSocket(ssl.SSLSocket):
        until = 0.0

        def recv_into(self, *given: Any) -> int:
            self.settimeout(_left(self.until))
            return super().recv_into(*given)

    return TlsSocket


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("it comes too slowly")
    return left


class _UnixConnection(Connection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", None, seconds)
        self._path = path

    def connect(self) -> None:
        made = _Socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            made.settimeout(self._seconds)
            made.connect(self._path)
        except BaseException:
            made.close()
            raise
        self.sock = self._made = made


class _TlsConnection(Connection):
    """HTTP over TLS."""

    def __init__(self, host: str, port: int, seconds: float, context: ssl.SSLContext) -> None:
        super().__init__(host, port, seconds)
        self._context = context
        context.sslsocket_class = _tls_socket()

    def connect(self) -> None:
        made = socket.create_connection((self.host, self.port), min(CONNECTING, self._seconds))
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.settimeout(self._seconds)  # whoever takes connections may be busy
            wrapped = self._context.wrap_socket(made, server_hostname=self.host)
        except BaseException:
            made.close()
            raise
        self.sock = self._made = wrapped


def parsed(url: str) -> tuple[str, int]:
    """Read https://HOST[:PORT], HOST[:PORT] or [ADDRESS][:PORT]; give the host and the port. Raises NoAddress."""
    expected = f"{escaped(url)} is no address of a registry: expected https://HOST or https://HOST:PORT; without a port {PORT}"
    try:
        found = urlsplit(url if "://" in url else f"https://{url}")
        host, port = found.hostname, PORT if found.port is None else found.port
    except ValueError:
        raise NoAddress(expected) from None
    rest = found.path.strip("/"), found.query, found.fragment, found.username
    if found.scheme != "https" or not host or not port or any(rest) or not (host.isascii() and host.isprintable()) or " " in host:
        raise NoAddress(expected)
    return host, port


def words(error: BaseException) -> str:
    """Give what an error of the system says."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
