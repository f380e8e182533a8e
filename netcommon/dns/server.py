"""Talks to the servers that take our updates: TCP (RFC 7766), every message signed (TSIG, RFC 8945), every wait bounded.

One connection serves a run. A server that did not answer is not asked again in the same run, so a run with a dead server costs one
time limit, however much there is to do.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdata
import dns.rdatatype
import dns.rrset
import dns.tsig
import dns.update
import dns.xfr
import dns.zone

from netcommon.dns.key import Key
from netcommon.dns.names import NoZone
from netcommon.dns.signatures import Signatures, Unsigned
from netcommon.dns.transfer import Ends
from runtime.errors import HostRefused, NetcommonError, SettingsInvalid, TryAgain

#: The answers to an update whose prerequisites did not hold (RFC 2136, 3.2.5).
UNMET = frozenset({dns.rcode.YXDOMAIN, dns.rcode.YXRRSET, dns.rcode.NXDOMAIN, dns.rcode.NXRRSET})

#: A transfer that is larger is given up: a million names are smaller.
LARGEST = 64 << 20  #: bytes
MOST = 200_000  #: messages


class Servers:
    """The servers of the settings ("ADDRESS:PORT"); ``timeout`` seconds for one answer, all of it until ``deadline`` by ``now``."""

    def __init__(self, addresses: Sequence[str], key: Key, timeout: float, deadline: float, now: Callable[[], float]) -> None:
        self._key = dns.tsig.Key(absolute(key.name), key.secret, dns.name.from_text(key.algorithm))
        self._timeout, self._deadline, self._now = timeout, deadline, now
        self._left = list(addresses)
        self._silent: list[str] = []
        self._connection: socket.socket | None = None

    @property
    def answering(self) -> bool:
        """Whether there is one left that has not failed to answer."""
        return bool(self._left) and self._now() < self._deadline

    def close(self) -> None:
        """Lets the connection go."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def query(self, zone: str, name: str, kind: str) -> dns.rrset.RRset | None:
        """The records of one type at ``name``, None where there are none.

        Raises TryAgain where no server answers, SettingsInvalid or HostRefused where one refuses or has no authority over the zone.
        """
        asked = dns.message.make_query(absolute(name), kind)
        asked.flags &= ~dns.flags.RD
        answer = self._exchange(asked)
        if answer.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            raise self._refusal(answer.rcode(), zone)
        if not answer.flags & dns.flags.AA:
            raise SettingsInvalid(
                f"DNS server {self._left[0]} has no authority over {name}: is {zone} a zone of its own, with no cut below?"
            )
        return answer.get_rrset(answer.answer, absolute(name), asked.question[0].rdclass, dns.rdatatype.from_text(kind))

    def update(self, zone: str, message: dns.update.UpdateMessage) -> bool:
        """Sends an update; True: done, False: its prerequisites did not hold and nothing was done. Raises as query."""
        rcode = self._exchange(message).rcode()
        if rcode != dns.rcode.NOERROR and rcode not in UNMET:
            raise self._refusal(rcode, zone)
        return rcode == dns.rcode.NOERROR

    def transfer(self, zone: str, kind: str) -> dict[str, list[dns.rdata.Rdata]]:
        """Read the whole of ``zone``, and give its records of one type by name. Raises as whole."""
        found = self.whole(zone).iterate_rdatasets(dns.rdatatype.from_text(kind))
        return {name.to_text(omit_final_dot=True).lower(): list(records) for name, records in found}

    def whole(self, zone: str) -> dns.zone.Zone:
        """Read the whole of ``zone`` (AXFR, RFC 5936).

        Raises as query, TryAgain where it comes in part, or not signed from its beginning to its end: what was read then is nobody's to
        act on; HostRefused where it is too large.
        """
        asked = dns.message.make_query(absolute(zone), "AXFR")
        asked.flags &= ~dns.flags.RD
        asked.use_tsig(self._key)
        while self._left:
            self.close()  # a server that has begun a transfer may end the connection with it
            try:
                return self._transferred(zone, asked)
            except (OSError, EOFError) as error:
                self._silenced(error)
            finally:
                self.close()
        raise TryAgain(f"no DNS server answers: {'; '.join(self._silent)}")

    def _transferred(self, zone: str, asked: dns.message.Message) -> dns.zone.Zone:
        """Raises OSError or EOFError where the server does not answer, or not to the end; else NetcommonError."""
        connection, wire = self._connected(), asked.to_wire()
        connection.sendall(len(wire).to_bytes(2, "big") + wire)
        made = dns.zone.Zone(absolute(zone), relativize=False)
        done = False
        try:
            parts = self._parts(connection, zone, asked)
            with dns.xfr.Inbound(made, dns.rdatatype.AXFR) as inbound:
                for wire in parts:
                    done = inbound.process_message(dns.message.from_wire(wire, xfr=True))
        except Unsigned as error:
            if error.rcode == dns.rcode.NOERROR:
                raise TryAgain(f"DNS server {self._left[0]}: zone {zone} came in part, or wrong: {error}") from None
            raise self._not_transferred(error.rcode, zone) from None
        except dns.xfr.TransferError as error:
            raise self._not_transferred(error.rcode, zone) from None
        except (dns.exception.DNSException, ValueError) as error:  # ValueError: a zone refuses records of another class, or another SOA
            raise self._untrusted(error) or TryAgain(f"DNS server {self._left[0]}: zone {zone} came in part, or wrong: {error}") from None
        if not done:
            raise TryAgain(f"DNS server {self._left[0]}: zone {zone} came without its end")
        return made

    def _parts(self, connection: socket.socket, zone: str, asked: dns.message.Message) -> list[bytes]:
        """Receive all messages of a transfer, and give them without their signatures, which hold.

        Raises OSError or EOFError; Unsigned, DNSException where a signature is missing or wrong; HostRefused where it is too large.
        """
        ends, signatures, found, size, ended = Ends(), Signatures(self._key, asked), list[bytes](), 0, False
        while not ended:
            limit = min(self._now() + self._timeout, self._deadline)
            length = int.from_bytes(self._read(connection, 2, limit), "big")
            wire = self._read(connection, length, limit)
            size += length
            if size > LARGEST or len(found) >= MOST:
                raise HostRefused(
                    f"DNS server {self._left[0]}: zone {zone} is larger than {LARGEST >> 20} MiB, or comes in more than {MOST} messages:"
                    " is it the right one?"
                )
            found.append(signatures.verified(wire))
            ended = ends.after(wire)
        signatures.end()
        return found

    def _not_transferred(self, rcode: int, zone: str) -> NetcommonError:
        if rcode == dns.rcode.REFUSED:
            return HostRefused(f"DNS server {self._left[0]} refused to transfer zone {zone}: may the TSIG key do that?")
        return self._refusal(rcode, zone)

    def _silenced(self, error: Exception) -> None:
        """Ask the server that did not answer no more."""
        reason = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", "") or str(error)
        self._silent.append(f"{self._left.pop(0)}: {reason}")

    def _exchange(self, message: dns.message.Message) -> dns.message.Message:
        message.use_tsig(self._key)
        while self._left:
            fresh = self._connection is None
            try:
                return self._once(message)
            except (OSError, EOFError) as error:
                self.close()
                # A server closes what is idle (RFC 7766, 6.2.3): then once more, over a new connection.
                if fresh or isinstance(error, TimeoutError):
                    self._silenced(error)
        raise TryAgain(f"no DNS server answers: {'; '.join(self._silent)}")

    def _once(self, message: dns.message.Message) -> dns.message.Message:
        """Raises OSError or EOFError where the server does not answer."""
        limit = min(self._now() + self._timeout, self._deadline)
        try:
            wire = message.to_wire()
        except dns.exception.TooBig:
            count = sum(map(len, message.sections))
            raise HostRefused(
                f"DNS server {self._left[0]}: {count} sets of records are more than a message can have: report this"
            ) from None
        connection = self._connected()
        connection.settimeout(self._until(limit))
        connection.sendall(len(wire).to_bytes(2, "big") + wire)
        length = int.from_bytes(self._read(connection, 2, limit), "big")
        return self._parsed(message, self._read(connection, length, limit))

    def _connected(self) -> socket.socket:
        """The connection to the first server that is left. Raises OSError."""
        if self._connection is None:
            host, _, port = self._left[0].rpartition(":")
            limit = min(self._now() + self._timeout, self._deadline)
            self._connection = socket.create_connection((host.strip("[]"), int(port)), self._until(limit))
        return self._connection

    def _until(self, limit: float) -> float:
        left = limit - self._now()
        if left <= 0:
            raise TimeoutError
        return left

    def _read(self, connection: socket.socket, count: int, limit: float) -> bytes:
        data = b""
        while len(data) < count:
            connection.settimeout(self._until(limit))
            part = connection.recv(count - len(data))
            if not part:
                raise EOFError("the connection was closed")
            data += part
        return data

    def _parsed(self, message: dns.message.Message, wire: bytes) -> dns.message.Message:
        """The answer, verified. Raises NetcommonError: what is not signed is believed only to be an error."""
        server = self._left[0]
        try:
            answer = dns.message.from_wire(wire, keyring=message.keyring, request_mac=message.mac)
            if answer.had_tsig and message.is_response(answer):
                return answer
        except dns.exception.DNSException as error:
            if why := self._untrusted(error):
                raise why from None
            # else unsigned, or wrongly: what dnspython makes of that differs by version
        rcode = _unsigned_rcode(wire)
        if rcode == dns.rcode.NOERROR:
            raise TryAgain(f"DNS server {server}: an answer without a signature that can be trusted, or to another question")
        raise self._refusal(rcode, "")

    def _untrusted(self, error: Exception) -> NetcommonError | None:
        """Say what the server, or we, found wrong with a signature; None for any other error."""
        server, name = self._left[0], self._key.name.to_text(omit_final_dot=True)
        if isinstance(error, dns.tsig.PeerBadKey):
            # Knot says the same of a key that it knows, where that may not do what is asked for.
            return SettingsInvalid(
                f"DNS server {server} does not know the TSIG key {name}, or not for this: make it there, with leave to query, update"
                " and transfer the zone, or correct the key file"
            )
        if isinstance(error, dns.tsig.PeerBadSignature | dns.tsig.PeerBadTruncation):
            return SettingsInvalid(f"DNS server {server} has another secret or algorithm for the TSIG key {name}: both must have the same")
        if isinstance(error, dns.tsig.PeerBadTime | dns.tsig.BadTime):
            return HostRefused(f"the clocks of DNS server {server} and of this node differ too much for TSIG: set both by NTP")
        return None

    def _refusal(self, rcode: int, zone: str) -> NetcommonError:
        server, text = self._left[0], dns.rcode.to_text(dns.rcode.Rcode(rcode))
        about = f" for zone {zone}" if zone else ""
        if rcode == dns.rcode.REFUSED:
            return HostRefused(f"DNS server {server} refused{about}: may the TSIG key update it?")
        if rcode in (dns.rcode.NOTAUTH, dns.rcode.NOTZONE):
            return NoZone(f"DNS server {server} has no authority{about} ({text}): make the zone there, or name another server")
        if rcode == dns.rcode.SERVFAIL:
            return TryAgain(f"DNS server {server} failed{about} ({text})")
        return HostRefused(f"DNS server {server} answered {text}{about}")


def absolute(name: str) -> dns.name.Name:
    """The name as dnspython wants it."""
    return dns.name.from_text(name + ".")


def _unsigned_rcode(wire: bytes) -> int:
    """The code in the header of a message (RFC 1035, 4.1.1); NOERROR where it has none."""
    return wire[3] & 0x0F if len(wire) >= 12 else dns.rcode.NOERROR
