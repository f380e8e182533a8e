"""Read the address of an etcd: its members, and by what both sides are sure of each other. No file is looked at.

``etcd://HOST[:PORT],HOST[:PORT],...?ca=FILE&cert=FILE&key=FILE&user=NAME&password=FILE``. With ``ca`` it is spoken to by TLS; without it
only on the machine itself, where nobody listens in. The settings and the registry read it here alone: what one takes the other does.
"""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from runtime.typed import NamedTuple

SCHEME = "etcd://"
PORT = 2379
FILES = ("ca", "cert", "key", "password")
NAMES = (*FILES, "user")
LONGEST, MOST = 4096, 16  #: characters; members
HEX = frozenset("0123456789abcdefABCDEF")
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-")


class NoAddress(ValueError):
    """A text is no address of an etcd: the message says why."""


class InTheClear(NoAddress):
    """Passwords and the registry would go in the clear to another machine, ``host``."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(f"{host!a} is another machine, and without TLS everybody between could read and write: add ca=FILE")


class Address(NamedTuple):
    """An etcd: host and port of each member, and what is given beside, by name; what is not given is not there."""

    members: tuple[tuple[str, int], ...]
    given: dict[str, str]


def parsed(text: str) -> Address:
    """Read an address. Raises NoAddress."""
    if not text.isascii() or not text.isprintable() or not text.startswith(SCHEME) or "#" in text:
        raise NoAddress("it is no such address")
    if len(text) > LONGEST:
        raise NoAddress(f"it has more than {LONGEST} characters")
    listed, _, more = text.removeprefix(SCHEME).partition("?")
    members = tuple(_member(each) for each in listed.removesuffix("/").split(","))
    if len(members) > MOST:
        raise NoAddress(f"it has more than {MOST} members")
    if len(set(members)) != len(members):
        raise NoAddress("one member is named twice")
    given = _given(more)
    far = [host for host, _port in members if not _near(host)]
    if far and "ca" not in given:
        raise InTheClear(far[0])
    return Address(members, given)


def _member(text: str) -> tuple[str, int]:
    """Read the host and port of a member: HOST, HOST:PORT; an IPv6 address in brackets. Raises NoAddress."""
    if text.count(":") > 1 and "[" not in text:
        raise NoAddress(f"{text!a} is no HOST:PORT: an IPv6 address stands in brackets, [2001:db8::1]:{PORT}")
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        host = _ipv6(host if bracket else "", text)
    else:
        host, colon, port = text.partition(":")
        port = colon + port
        if not host or not LETTERS.issuperset(host.lower()):
            raise NoAddress(f"{text!a} is no HOST:PORT")
    number = port.removeprefix(":")
    if port and (port[0] != ":" or (number and not (number.isdecimal() and len(number) <= 5 and 0 < int(number) < 1 << 16))):
        raise NoAddress(f"{text!a} is no HOST:PORT: a port is a number from 1 to 65535")
    return host.lower(), int(number or PORT)


def _ipv6(host: str, text: str) -> str:
    try:
        return inet_ntop(AF_INET6, inet_pton(AF_INET6, host))
    except (OSError, ValueError):
        raise NoAddress(f"{text!a} has no IPv6 address in its brackets") from None


def _given(text: str) -> dict[str, str]:
    """Read what stands behind the "?". Raises NoAddress."""
    parts = [each.partition("=") for each in text.split("&")] if text else []
    names = [name for name, _equals, _value in parts]
    if len(set(names)) != len(names) or set(names).difference(NAMES) or not all(equals for _name, equals, _value in parts):
        raise NoAddress(f"of {', '.join(NAMES)} each may be given once, as NAME=VALUE, and nothing else")
    found = {name: _decoded(value) for name, _equals, value in parts if value}
    for name in FILES:
        if name in found and not found[name].startswith("/"):
            raise NoAddress(f"{name} is the absolute path of a file")
    if ("cert" in found) != ("key" in found) or ("user" in found) != ("password" in found):
        raise NoAddress("cert goes with key, and user with password")
    if "cert" in found and "ca" not in found:
        raise NoAddress("cert and key go with ca")
    return found


def _decoded(text: str) -> str:
    """Decode a value as a form has it (application/x-www-form-urlencoded). Raises NoAddress."""
    first, *rest = text.replace("+", " ").split("%")
    try:
        data = first.encode("ascii")
        for each in rest:
            data += bytes((int(each[:2], 16),)) + each[2:].encode("ascii")
        found = data.decode() if all(HEX.issuperset(each[:2]) and len(each) > 1 for each in rest) else ""
    except ValueError:
        found = ""
    if not found.isprintable() or not found:
        raise NoAddress(f"{text!a} is no value as it stands in an address: printable text, with %20 for a space")
    return found


def _near(host: str) -> bool:
    """Tell whether a host is this machine, without asking a resolver."""
    try:
        return host in ("localhost", "::1") or inet_pton(AF_INET, host)[0] == 127
    except OSError:
        return False
