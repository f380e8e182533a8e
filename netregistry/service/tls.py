"""Let others in by TLS: the service's own certificate, the authorities that count, and why somebody was not let in."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
import ssl
import tempfile
from asyncio import sslproto
from collections import Counter
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from netregistry.authority import GET_IT, LIBRARY
from netregistry.model.certificate import SET_BACK, URN
from netregistry.rules.holders import JOIN, authorities
from runtime.errors import HostRefused, TryAgain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from netregistry.core import Core
    from netregistry.service.connection import Connection
    from netregistry.service.turned_away import TurnedAway

T = TypeVar("T")
HANDSHAKE = 10.0  #: seconds
HANDSHAKES = 256  #: at a time
NEWCOMERS = 128  #: connections without a certificate at a time
OF_ONE = 64  #: connections by one certificate at a time; an agent has two
OF_HOLDER = 128  #: by all certificates of one identity
UNPRIVILEGED = 1024  #: the first port that may be listened on without a capability (ip(7), capabilities(7))
FAREWELL = 1.0  #: seconds for the other side to end a connection that is ended here
MOMENT = 0.5  #: seconds for who is refused to end the connection
STAY = 30.0  #: seconds that a connection lasts on which nobody has asked anything by a certificate that counts
AFTER_ALERT = 16  #: times that somebody who is refused is read from
#: Bytes of a buffer that asyncio keeps for each connection; its 256 KiB are half a gigabyte for two thousand streams. A record has 16.
sslproto.SSLProtocol.max_size = 16 << 10

#: X509_V_ERR of OpenSSL -> the reason that is counted, and what is said.
VERDICTS = {
    10: ("expired", "its certificate has ended"),
    9: ("not-yet", "its certificate begins later: the clocks are more than five minutes apart"),
    18: ("self-signed", "its certificate is signed by itself"),
    19: ("self-signed", "its certificate is of an authority that signed itself, and is none of ours"),
}
FOREIGN = ("foreign", "its certificate is of no authority that counts here")


class Listening(NamedTuple):
    """Where a service is for others: addresses with ports, the names in its certificate, and the folder of the authorities' keys."""

    addresses: tuple[tuple[str, int], ...] = ()
    names: tuple[str, ...] = ()
    keys: str = ""


class _Handshake(ssl.SSLObject):
    """A handshake that tells the other side why it is refused.

    asyncio ends a connection whose handshake fails, and never sends the alert that waits to be sent. So a failure is one more round first.
    """

    refused: ssl.SSLError | None = None
    _rounds = 0

    def do_handshake(self) -> None:
        """Go on with the handshake. Raises SSLWantReadError where more is to be read; SSLError."""
        if self.refused is None:
            try:
                super().do_handshake()
                return
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                self.refused = error
                _ENTERING.get().fail(error)
        self._rounds += 1
        if self._rounds > AFTER_ALERT:
            raise self.refused
        raise ssl.SSLWantReadError  # the alert is sent; then the other side ends it, or the time does


class _Entering:
    """A connection whose handshake goes on."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.error: ssl.SSLError | None = None

    def fail(self, error: ssl.SSLError) -> None:
        """Note why nobody is let in; who has been told so and does not end the connection has a moment for it."""
        self.error = error
        asyncio.get_running_loop().call_later(MOMENT, self._end)

    def _end(self) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._connection.shutdown(socket.SHUT_RD)


_ENTERING: ContextVar[_Entering] = ContextVar("entering")


class Door:
    """How others come in. ``core``: the registry's; ``folder``: where a key lies for a moment, in memory and root's alone.

    All but ``renewed`` is for the event loop.
    """

    def __init__(self, listening: Listening, folder: str, core: Core, away: TurnedAway) -> None:
        self._listening, self._folder, self._core, self._away = listening, folder, core, away
        self._context: ssl.SSLContext | None = None
        self._as: tuple[str, ...] = ()
        self._made = self._again = 0.0  # when the certificate was made, and is made anew
        self.until = 0.0  #: when it ends
        self._entering: dict[asyncio.Task[None], str] = {}  # -> from where; the longest waiting first, as below
        # when each is ended; None: never, for somebody has asked something on it by a certificate that counts
        self._within: dict[Connection, asyncio.TimerHandle | None] = {}
        self._newcomers: dict[Connection, str] = {}
        self._of: dict[tuple[str, str], dict[Connection, None]] = {}  # those of one identity by one certificate
        self._known: dict[str, dict[Connection, None]] = {}  # those of one identity by certificates that count
        self._empty = asyncio.Event()

    def renewed(self) -> None:
        """Make the certificate anew where it is due, or other authorities count. In the registry's turn. Raises HostRefused."""
        now = self._core.now()
        counting = authorities(self._core.view, now)
        labels = tuple(each.id for each in counting)
        if labels == self._as and self._made - SET_BACK / 2 < now < self._again:
            return  # one that was made while the clock was fast is no certificate yet
        if not counting:
            self._context, self._as = None, ()
            raise HostRefused("nobody is let in by TLS: this registry has no authority", "netcommon registry authority rotate makes one")
        try:
            from netregistry.authority import key_files, x509
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != LIBRARY:
                raise
            raise HostRefused(f"nobody is let in by TLS: the service needs {LIBRARY}", GET_IT) from None
        signs = next((each for each in reversed(counting) if key_files.key(self._listening.keys, each.id)), None)
        if signs is None:
            advice = f"copy the key of {labels[-1]} into {self._listening.keys} from the machine that made it"
            raise HostRefused("nobody is let in by TLS: no authority's key is on this machine", advice)
        key = key_files.key(self._listening.keys, signs.id)
        x509.check(signs, key)
        identity, self.until = x509.make_service(self._listening.names, signs, key, now)
        try:
            self._context = _context(identity, "".join(each.certificate for each in counting), self._folder)
        except OSError as error:  # such as a /run that is full
            text = f"nobody new is let in by TLS: cannot use a certificate in {self._folder}: {error.strerror or error}"
            raise HostRefused(text, "netcommon doctor says whether it is full") from None
        self._as, self._made, self._again = labels, now, now + (self.until - now) / 2

    def enter(self, connection: socket.socket, address: str, speak: Callable[[], Connection]) -> None:
        """Let somebody in, or turn him away; the connection is ours from now on."""
        if self._context is None:
            self._away.note("not-ready", address, "nobody can be let in by TLS now")
            connection.close()
            return
        if len(self._entering) >= HANDSHAKES:
            longest = crowding(self._entering)
            self._away.note("busy", self._entering.pop(longest), f"{HANDSHAKES} handshakes go on")
            longest.cancel()
        task = asyncio.create_task(self._entered(connection, address, speak, self._context))
        self._entering[task] = origin(address)
        task.add_done_callback(partial(self._entered_or_not, connection))

    def _entered_or_not(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._entering.pop(task, None)
        if task.cancelled():
            connection.close()  # one that was cancelled before it began has not done it

    async def _entered(self, connection: socket.socket, address: str, speak: Callable[[], Connection], context: ssl.SSLContext) -> None:
        entering = _Entering(connection)
        _ENTERING.set(entering)
        loop = asyncio.get_running_loop()
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(connection.close)
                transport, made = await loop.connect_accepted_socket(
                    speak, connection, ssl=context, ssl_handshake_timeout=HANDSHAKE, ssl_shutdown_timeout=FAREWELL
                )
                stack.pop_all()
        except OSError as error:  # ssl.SSLError is one
            self._refused(address, entering.error or error)
            return
        if made.transport is None:
            return  # gone already
        self._within[made] = loop.call_later(STAY, transport.abort)  # unless a first request shows that its certificate counts
        made.gone, made.known = partial(self._left, made), partial(self._recognised, made, address)
        if made.certificate:
            self._counted(made, address)
            return
        if len(self._newcomers) >= NEWCOMERS:
            longest = crowding(self._newcomers)
            self._away.note("busy", self._newcomers.pop(longest), f"{NEWCOMERS} connections without a certificate are open")
            if longest.transport is not None:
                longest.transport.abort()
        self._newcomers[made] = origin(address)

    def _counted(self, made: Connection, address: str) -> None:
        """Note whose connection it is; one too many ends the one that is there longest: it may be of a machine that is gone.

        It is counted by its certificate: who has a key that was lost, and revoked, must not end connections of who has joined again.
        """
        there = self._of.setdefault(made.whose, {})
        there[made] = None
        if len(there) > OF_ONE:
            self._end_first(made.whose, address)

    def _recognised(self, made: Connection, address: str) -> None:
        """Note whose connection it is by a certificate that counts; of one too many the one that is there longest is ended.

        He may renew his certificate as often as he likes, so there is a bound for all of them.
        """
        if made not in self._within:
            return  # gone already
        if (end := self._within[made]) is not None:
            end.cancel()
            self._within[made] = None
        name = made.whose[0]
        there = self._known.setdefault(name, {})
        there[made] = None
        if len(there) > OF_HOLDER:
            longest = next(iter(there))
            del there[longest]
            self._away.note("busy", address, f"{OF_HOLDER} connections of {name.removeprefix(URN)} are open: the first of them is ended")
            if longest.transport is not None:
                longest.transport.abort()

    def relieve(self) -> None:
        """End a connection of the identity that has the most, where there can be no more: by many certificates one may have them all."""
        counts = Counter[str]()
        for (name, _serial), there in self._of.items():
            counts[name] += len(there)
        ((most, count),) = counts.most_common(1) or [("", 0)]
        if count > OF_ONE:
            self._end_first(next(whose for whose in self._of if whose[0] == most), "")

    def _end_first(self, whose: tuple[str, str], address: str) -> None:
        there = self._of[whose]
        longest = next(iter(there))
        del there[longest]
        if not there:
            del self._of[whose]
        self._away.note("busy", address, f"{OF_ONE} connections of {whose[0].removeprefix(URN)} are open: the first of them is ended")
        if longest.transport is not None:
            longest.transport.abort()

    def _left(self, made: Connection) -> None:
        end = self._within.pop(made)
        self._newcomers.pop(made, None)
        if made.certificate and (there := self._of.get(made.whose)) is not None:
            there.pop(made, None)
            if not there:
                del self._of[made.whose]
        if end is not None:
            end.cancel()
        if made.recognised and (known := self._known.get(made.whose[0])) is not None:
            known.pop(made, None)
            if not known:
                del self._known[made.whose[0]]
        if not self._within:
            self._empty.set()

    def _refused(self, address: str, error: OSError) -> None:
        if isinstance(error, ssl.SSLCertVerificationError):
            reason, what = VERDICTS.get(error.verify_code, FOREIGN)
            self._away.note(reason, address, f"{what}: {JOIN}")
        elif isinstance(error, ssl.SSLError):
            self._away.note("no-tls", address, f"it does not speak TLS 1.3 as we do: {error.reason or error}")
        else:
            self._away.note("broken", address, "")  # it went away, or said nothing: nothing to be mended here

    def close(self) -> None:
        """Let nobody in any more."""
        for task in self._entering:
            task.cancel()

    async def emptied(self) -> None:
        """Wait for those who are within to be gone, once their connections are being ended: TLS has a farewell, which takes its time."""
        self._empty.clear()
        if self._within:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), 2 * FAREWELL)


def origin(address: str) -> str:
    """Give what one peer has of addresses: an IPv4 address, or 64 bits of IPv6."""
    found = ipaddress.ip_address(address)
    return address if found.version == 4 else found.packed[:8].hex()


def crowding(there: Mapping[T, str]) -> T:
    """Give who makes room for another one: of those from where the most are, who is there longest. So nobody keeps others out."""
    counts = Counter(there.values())
    most = max(counts.values())
    return next(each for each, whence in there.items() if counts[whence] == most)


def _context(identity: str, trusted: str, folder: str) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.minimum_version = ssl.TLSVersion.TLSv1_3
    found.verify_mode = ssl.CERT_OPTIONAL  # who joins has none yet
    found.num_tickets = 0  # with a ticket nobody would look at the certificate again
    found.sslobject_class = _Handshake
    found.load_verify_locations(cadata=trusted)
    with tempfile.NamedTemporaryFile("w", prefix=".tls-", dir=folder) as file:  # mode 0600
        file.write(identity)
        file.flush()
        found.load_cert_chain(file.name)
    return found


def listened(listening: Listening) -> list[socket.socket]:
    """Bind all addresses. Raises HostRefused; TryAgain for an address that the machine has not, or not yet."""
    found: list[socket.socket] = []
    for address, port in listening.addresses:
        bound = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        found.append(bound)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if bound.family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind((address, port))
        except OSError as error:
            for each in found:
                each.close()
            what = f"cannot listen on {address} port {port}: {os.strerror(error.errno or 0)}"
            if error.errno == errno.EADDRNOTAVAIL:
                raise TryAgain(f"{what}: this machine has no such address now, and [registry] listen names it") from None
            if error.errno in (errno.EACCES, errno.EPERM) and port < UNPRIVILEGED:
                advice = f"[registry] listen names a port above {UNPRIVILEGED - 1}, as 8931: the service has no capability for those below"
                raise HostRefused(what, advice) from None
            raise HostRefused(what, "[registry] listen names addresses of this machine that nobody else has") from None
    return found
