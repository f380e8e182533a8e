"""Kinds of values that only the settings have: of [agent], [repair], [dns] and [extensions.NAME]. Others: netcommon.options.types."""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from math import isfinite

from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

    from netcommon.options.types import Seconds


#: What is done about an operation that does not hold any more.
REPAIRS = ("off", "report", "on")


class Delay(NamedTuple):
    """Seconds, or "auto"."""

    seconds: Seconds

    @property
    def expected(self) -> str:
        return f'"auto", or {self.seconds.expected}'

    def read(self, value: Any) -> object:
        return value if value == "auto" else self.seconds.read(value)


class Listen(NamedTuple):
    """An address with a port, or the path of a Unix socket; "" for none. Read in canonical form."""

    @property
    def expected(self) -> str:
        return 'an address with a port such as "127.0.0.1:9642" or "[::1]:9642", the path of a Unix socket, or ""'

    def read(self, value: Any) -> object:
        if not isinstance(value, str) or not value.isprintable():
            raise ValueError
        if value.startswith("/") and (value.endswith("/") or len(value.encode()) > 107):  # sun_path, unix(7)
            raise ValueError
        if not value or value.startswith("/"):
            return value
        host, colon, port = value.rpartition(":")
        six = host.startswith("[") and host.endswith("]")
        if not colon or not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 1 << 16):
            raise ValueError
        family = AF_INET6 if six else AF_INET
        try:
            host = inet_ntop(family, inet_pton(family, host.strip("[]") if six else host))
        except OSError:
            raise ValueError from None
        return f"[{host}]:{int(port)}" if six else f"{host}:{int(port)}"


class Listens(NamedTuple):
    """Addresses with ports, each once. Read in canonical form."""

    @property
    def expected(self) -> str:
        return 'a list of addresses with ports such as ["192.0.2.1:8931", "[::]:8931"], each once'

    def read(self, value: Any) -> object:
        found = tuple(Listen().read(item) for item in _texts(value))
        if any(not item or str(item).startswith("/") for item in found) or len(set(found)) != len(found):
            raise ValueError
        return found


class Names(NamedTuple):
    """Names of hosts and addresses, each once. Read in canonical form."""

    @property
    def expected(self) -> str:
        return 'a list of names and addresses such as ["registry.example.com", "192.0.2.1"], each once'

    def read(self, value: Any) -> object:
        found = tuple(_host_or_address(item) for item in _texts(value))
        if len(set(found)) != len(found):
            raise ValueError
        return found


class Urls(NamedTuple):
    """Addresses of a registry's services, each once. Read in canonical form."""

    @property
    def expected(self) -> str:
        return 'a list of addresses such as ["https://registry1.example.com:8931", "https://[2001:db8::1]:8931"], each once'

    def read(self, value: Any) -> object:
        found = tuple(_url(item) for item in _texts(value))
        if len(set(found)) != len(found):
            raise ValueError
        return found


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError
    return tuple(value)


def _host_or_address(text: str) -> str:
    try:
        family = AF_INET6 if ":" in text else AF_INET
        return inet_ntop(family, inet_pton(family, text))
    except (OSError, ValueError):
        return domain(text)


def _url(text: str) -> str:
    """The canonical text of https://HOST:PORT. Raises ValueError."""
    scheme, _, rest = text.partition("://")
    host, colon, port = rest.removesuffix("/").rpartition(":")
    if scheme != "https" or not colon or not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 1 << 16):
        raise ValueError
    if host.startswith("[") and host.endswith("]"):
        return f"https://[{inet_ntop(AF_INET6, _packed6(host[1:-1]))}]:{int(port)}"
    if ":" in host:
        raise ValueError
    return f"https://{_host_or_address(host)}:{int(port)}"


def _packed6(text: str) -> bytes:
    try:
        return inet_pton(AF_INET6, text)
    except OSError:
        raise ValueError from None


#: The characters of a name of the DNS; "/" and "_" for zones as RFC 2317 has them.
_HOST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_ZONE = _HOST | frozenset("/_")


class Servers(NamedTuple):
    """Addresses with or without a port, each once; read as "address port" pairs."""

    @property
    def expected(self) -> str:
        return 'a list of addresses such as ["192.0.2.53", "192.0.2.54:5353", "[2001:db8::53]:53"], each once'

    def read(self, value: Any) -> object:
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise ValueError
        found = tuple(_server(item) for item in value)
        if len(set(found)) != len(found):
            raise ValueError
        return found


def _server(text: str) -> str:
    """The canonical text: "192.0.2.53:53", "[2001:db8::53]:53". Raises ValueError."""
    host, port = text, "53"
    if text.startswith("["):
        host, close, rest = text[1:].partition("]")
        if not close or ":" not in host or (rest and not rest.startswith(":")):
            raise ValueError
        port = rest[1:] if rest else port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 1 << 16):
        raise ValueError
    family = AF_INET6 if ":" in host else AF_INET
    try:
        host = inet_ntop(family, inet_pton(family, host))
    except OSError:
        raise ValueError from None
    return f"[{host}]:{int(port)}" if family == AF_INET6 else f"{host}:{int(port)}"


class Zones(NamedTuple):
    """Names of zones, each once; read in lower case."""

    @property
    def expected(self) -> str:
        return 'a list of zones such as ["example.com", "2.0.192.in-addr.arpa"], each once'

    def read(self, value: Any) -> object:
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise ValueError
        found = tuple(_name(item, _ZONE) for item in value)
        if len(set(found)) != len(found):
            raise ValueError
        return found


class Domain(NamedTuple):
    """The name of a domain; "" for none."""

    @property
    def expected(self) -> str:
        return 'a domain such as "example.com", or ""'

    def read(self, value: Any) -> object:
        if not isinstance(value, str):
            raise ValueError
        return domain(value) if value else value


def domain(text: str) -> str:
    """The name of a domain in lower case, without a dot at its end (RFC 1035, 2.3.1). Raises ValueError."""
    return _name(text, _HOST)


def _name(text: str, characters: frozenset[str]) -> str:
    name = text.lower().removesuffix(".") if text.isascii() else ""
    labels = name.split(".")
    if len(name) > 240 or not all(0 < len(label) <= 63 and characters.issuperset(label) for label in labels):
        raise ValueError
    if any(label[0] == "-" or label[-1] == "-" for label in labels):
        raise ValueError
    return name


class Template(NamedTuple):
    """The first label of a name, in which {host} and {index} stand for the instance's own and the NIC's index; "" for none."""

    @property
    def expected(self) -> str:
        return 'a label such as "{host}-eth{index}", made of {host}, {index}, letters, digits and hyphens, or ""'

    def read(self, value: Any) -> object:
        if not isinstance(value, str):
            raise ValueError
        sample = value.replace("{host}", "h").replace("{index}", "1")
        if value and ("." in value or "{host}" not in value):
            raise ValueError
        if value:
            _name(sample, _HOST)
        return value


class FilePath(NamedTuple):
    """An absolute path; "" for none."""

    example: str

    @property
    def expected(self) -> str:
        return f'an absolute path such as "{self.example}"'

    def read(self, value: Any) -> object:
        if not isinstance(value, str) or (value and not value.startswith("/")) or not value.isprintable():
            raise ValueError
        return value


class EtcdAddress(NamedTuple):
    """The address of an etcd (netcommon.settings.etcd_address); "" for none."""

    @property
    def expected(self) -> str:
        return 'an address such as "etcd://10.0.0.1:2379,[2001:db8::2]:2379?ca=/FILE" (without ca: members on this machine alone), or ""'

    def read(self, value: Any) -> object:
        if not isinstance(value, str):
            raise ValueError
        if value:
            from netcommon.settings.etcd_address import NoAddress, parsed  # hooks read settings too, and few have one

            try:
                parsed(value)
            except NoAddress:
                raise ValueError from None
        return value


LONGEST = 64  #: characters of an extension's name


class Parameters(NamedTuple):
    """A table of the site's own: plain values, and lists of them, which become tuples."""

    @property
    def expected(self) -> str:
        return "a table of strings, numbers, true or false, and lists of those"

    def read(self, value: Any) -> object:
        if not isinstance(value, dict):
            raise ValueError
        return {name: _plain(each) for name, each in value.items()}


def _plain(value: object) -> object:
    if isinstance(value, list) and not any(isinstance(each, list) for each in value):
        return tuple(map(_plain, value))
    if type(value) not in (str, int, float, bool) or (isinstance(value, float) and not isfinite(value)):
        raise ValueError
    return value


def is_extension(name: str) -> bool:
    """Tell whether a module can be called so: ASCII letters, digits and underscores, not a digit or an underscore first."""
    return name.isascii() and name.isidentifier() and name[0] != "_" and len(name) <= LONGEST
