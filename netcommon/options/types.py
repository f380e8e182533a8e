"""Kinds of values, of settings and of options: what each may be, in the settings file and in a tag."""

from __future__ import annotations

from runtime import validate
from runtime.errors import NicInvalid
from runtime.typed import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self


class Kind(Protocol):
    """What a value must be: ``read`` makes of the file's value what the program holds, or raises ValueError."""

    @property
    def expected(self) -> str: ...
    def read(self, value: Any) -> object: ...


class TagKind(Kind, Protocol):
    """A kind that a tag can give too: ``parse`` makes of the tag's text what the file would hold, or raises ValueError."""

    def parse(self, text: str) -> object: ...


class Whole(NamedTuple):
    """A whole number within a range, both ends included."""

    low: int
    high: int
    unit: str = ""

    @property
    def expected(self) -> str:
        return f"a whole number{self.unit}, {self.low} to {self.high}"

    def read(self, value: Any) -> object:
        if type(value) is not int or not self.low <= value <= self.high:
            raise ValueError
        return value

    def parse(self, text: str) -> object:
        if not (text.isascii() and text.isdecimal()):
            raise ValueError
        return int(text)


class Bits(NamedTuple):
    """Neighbouring bits of a number of 32 bits, 0 for none; TOML has 0x for such numbers."""

    @property
    def expected(self) -> str:
        return "neighbouring bits of 32, such as 0xfff0000, or 0 for none"

    def read(self, value: Any) -> object:
        # adding its lowest bit to a row of ones leaves none of them
        if type(value) is not int or not 0 <= value < 1 << 32 or value & (value + (value & -value)):
            raise ValueError
        return value


class Seconds(NamedTuple):
    """A time in seconds, with or without a fraction."""

    low: float
    high: float

    @property
    def expected(self) -> str:
        return f"seconds, {self.low:g} to {self.high:g}"

    def read(self, value: Any) -> object:
        if type(value) not in (int, float) or not self.low <= value <= self.high:
            raise ValueError
        return float(value)


class Choice(NamedTuple):
    """One of some words."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return " or ".join(f'"{word}"' for word in self.words)

    def read(self, value: Any) -> object:
        if not isinstance(value, str) or value not in self.words:
            raise ValueError
        return value

    def parse(self, text: str) -> object:
        return text


class Interface(NamedTuple):
    """The name of an interface."""

    @property
    def expected(self) -> str:
        return 'an interface name such as "lo"'

    def read(self, value: Any) -> object:
        if not isinstance(value, str) or not is_interface(value):
            raise ValueError
        return value


class Interfaces(NamedTuple):
    """A list of interface names, each named once."""

    @property
    def expected(self) -> str:
        return 'a list of interface names such as ["eth1"], each once'

    def read(self, value: Any) -> object:
        if not isinstance(value, list) or not all(isinstance(item, str) and is_interface(item) for item in value):
            raise ValueError
        if len(set(value)) != len(value):
            raise ValueError
        return tuple(value)


class Truth(NamedTuple):
    """True or false; a tag without a value is true."""

    @property
    def expected(self) -> str:
        return "true or false"

    def read(self, value: Any) -> object:
        if type(value) is not bool:
            raise ValueError
        return value

    def parse(self, text: str) -> object:
        return {"": True, "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(text, text)


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

#: What Ganeti takes in a tag (objects.TaggableObject), as far as it is ASCII.
TAG = frozenset(LETTERS + "_.+*/:@-")

#: Units of a rate, as tc(8) names them, in bits a second.
UNITS = {"": 1, "bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


class Rate(NamedTuple):
    """Bits a second, as a number or with a unit of tc(8): "100mbit". 0: no limit."""

    @property
    def expected(self) -> str:
        return 'bits a second, 8kbit to 1000gbit, such as 64000, "512kbit", "100mbit" or "2gbit", 0 for no limit'

    def read(self, value: Any) -> object:
        if isinstance(value, str):
            digits = value.rstrip("abcdefghijklmnopqrstuvwxyz")
            if not (digits.isascii() and digits.isdecimal()) or value[len(digits) :] not in UNITS:
                raise ValueError
            value = int(digits) * UNITS[value[len(digits) :]]
        if type(value) is not int or not (value == 0 or 8000 <= value <= 10**12):
            raise ValueError
        return value

    def parse(self, text: str) -> object:
        return text


class Text(NamedTuple):
    """One word of some characters, such as a name of a template."""

    what: str
    characters: str = LETTERS + "-_."
    longest: int = 64

    @property
    def expected(self) -> str:
        return self.what

    def read(self, value: Any) -> object:
        if not isinstance(value, str) or not 0 < len(value) <= self.longest or set(value) - set(self.characters) or value[0] in "-.":
            raise ValueError
        return value

    def parse(self, text: str) -> object:
        return text


class TagPrefix(NamedTuple):
    """What tags of ours begin with, up to a colon: of the characters that Ganeti takes in a tag."""

    @property
    def expected(self) -> str:
        return "a word of letters, digits and .+*/:@-_, at most 64, without the colon at its end"

    def read(self, value: Any) -> object:
        if not isinstance(value, str) or not 0 < len(value) <= 64 or set(value) - TAG or value[0] in "-.:" or value[-1] == ":":
            raise ValueError
        return value


class Mac(NamedTuple):
    """A unicast MAC address, lower case; "": none."""

    @property
    def expected(self) -> str:
        return 'a unicast MAC address such as "fe:00:00:00:00:01", or ""'

    def read(self, value: Any) -> object:
        if value == "":
            return value
        parts = value.lower().split(":") if isinstance(value, str) else []
        if len(parts) != 6 or any(len(part) != 2 or set(part) - set("0123456789abcdef") for part in parts):
            raise ValueError
        if int(parts[0], 16) & 1 or not any(int(part, 16) for part in parts):
            raise ValueError
        return ":".join(parts)

    def parse(self, text: str) -> object:
        return text


class Address(NamedTuple):
    """An IPv4 or IPv6 address that a host can have; canonical text."""

    @property
    def expected(self) -> str:
        return "an IPv4 or IPv6 address of a host"

    def read(self, value: Any) -> object:
        if not isinstance(value, str):
            raise ValueError
        return _valid(validate.address, value, "", 0, False)

    def parse(self, text: str) -> object:
        return text


class Prefix(NamedTuple):
    """An IPv4 or IPv6 prefix with its length, no host bits set; canonical text."""

    @property
    def expected(self) -> str:
        return 'an IPv4 or IPv6 prefix of hosts such as "192.0.2.0/28", without host bits (not ::/0, loopback or multicast)'

    def read(self, value: Any) -> object:
        if not isinstance(value, str):
            raise ValueError
        prefix = _valid(validate.prefix, value, "")
        _valid(validate.address, prefix)  # no loopback, no multicast, not everything
        return prefix

    def parse(self, text: str) -> object:
        return text


LONGEST_KIND = 32  #: characters of a kind of endpoints


class EndpointKind(NamedTuple):
    """A kind of endpoints: one label of a host name (RFC 1123), lower case."""

    @property
    def expected(self) -> str:
        return f'a kind of endpoints such as "console", of lower-case letters, digits and hyphens, at most {LONGEST_KIND}'

    def read(self, value: Any) -> object:
        if not isinstance(value, str) or not validate.is_label(value) or len(value) > LONGEST_KIND:
            raise ValueError
        return value

    def parse(self, text: str) -> object:
        return text


class Several(NamedTuple):
    """A list of values of one kind, each once; a tag gives one, or none, and may be repeated."""

    kind: TagKind

    @property
    def expected(self) -> str:
        return f"a list, each {self.kind.expected}, none twice"

    def read(self, value: Any) -> object:
        if not isinstance(value, list):
            raise ValueError
        read = tuple(self.kind.read(each) for each in value)
        if len(set(read)) != len(read):
            raise ValueError
        return read

    def parse(self, text: str) -> object:
        return [self.kind.parse(text)] if text else []


class Services(Several):
    """Name what a guest may reach of a node: ("all",), ("none",), or services such as ("icmp", "tcp/80", "udp/53"), in this order."""

    __slots__ = ()

    def __new__(cls) -> Self:
        return super().__new__(cls, Service())

    @property
    def expected(self) -> str:
        return f'"all", "none", or a list, each {self.kind.expected}, none twice'

    def read(self, value: Any) -> object:
        if value in WHOLE or value in ([word] for word in WHOLE):
            return tuple(value) if isinstance(value, list) else (value,)
        read = super().read(value)
        if not read:
            raise ValueError
        return tuple(sorted(read, key=_by_port))  # type: ignore[call-overload]

    def parse(self, text: str) -> object:
        return text if text in WHOLE else [text]


WHOLE = ("all", "none")


class Service(NamedTuple):
    """A protocol and a port, udp/53, or icmp for the echo requests of both families."""

    @property
    def expected(self) -> str:
        return 'of "icmp", "tcp/PORT" and "udp/PORT"'

    def read(self, value: Any) -> object:
        if value == "icmp":
            return value
        protocol, slash, port = value.partition("/") if isinstance(value, str) else ("", "", "")
        if not slash or protocol not in ("tcp", "udp") or not (port.isascii() and port.isdecimal()) or len(port) > 5:
            raise ValueError
        if port[0] == "0" or int(port) > 0xFFFF:
            raise ValueError
        return value

    def parse(self, text: str) -> object:
        return text


def _by_port(service: str) -> tuple[str, int]:
    protocol, _, port = service.partition("/")
    return protocol, int(port or 0)


def _valid(rule: Callable[..., str], *given: object) -> str:
    """What a rule for NICs makes of a value. Raises ValueError."""
    try:
        return rule(*given)
    except NicInvalid:
        raise ValueError from None


def is_interface(name: str) -> bool:
    """Whether the kernel would take ``name`` for an interface (dev_valid_name: 15 bytes, no slash, colon or white space)."""
    return (
        0 < len(name.encode()) <= 15
        and name not in (".", "..")
        and name.isprintable()
        and not any(char in "/:" or char.isspace() for char in name)
    )
