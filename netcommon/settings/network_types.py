"""Kinds of values of what is said of a network ([networks.NAME], netcommon.options.networks)."""

from __future__ import annotations

from _socket import AF_INET

from netcommon.settings.types import domain
from runtime import validate
from runtime.errors import NicInvalid
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: An option of DHCPv4 has a length of one byte (RFC 2132, 2), and a line of dnsmasq's files 1024 characters.
LONGEST = 255
MOST = 16


class Host(NamedTuple):
    """An address of one family; "": none."""

    family: int

    @property
    def expected(self) -> str:
        return f'an {"IPv4" if self.family == AF_INET else "IPv6"} address, or ""'

    def read(self, value: Any) -> object:
        return _text(value, lambda text: validate.address(text, "", self.family, length=False)) if value != "" else ""


class Resolvers(NamedTuple):
    """Addresses of both families, each once, in the order in which they are asked."""

    @property
    def expected(self) -> str:
        return f"a list of at most {MOST} IPv4 or IPv6 addresses, each once"

    def read(self, value: Any) -> object:
        return _several(value, lambda each: _text(each, lambda text: validate.address(text, "", 0, length=False)))


class Search(NamedTuple):
    """Domains, each once, in lower case."""

    @property
    def expected(self) -> str:
        return f'a list of at most {MOST} domains such as "example.com", each once, of {LONGEST} characters together'

    def read(self, value: Any) -> object:
        found = _several(value, lambda each: domain(each) if isinstance(each, str) else domain(""))
        if sum(len(each) + 2 for each in found) > LONGEST:  # a length before each label, and an empty one behind (RFC 1035, 3.1)
            raise ValueError
        return found


class Routes(NamedTuple):
    """A table: an IPv4 prefix, and the address of the router to it, as the guests know it. In the order of the file."""

    @property
    def expected(self) -> str:
        return f'a table of at most {MOST} IPv4 routes such as {{ "10.1.0.0/16" = "10.0.0.254" }}: DHCP has none for IPv6'

    def read(self, value: Any) -> object:
        if not isinstance(value, dict) or len(value) > MOST:
            raise ValueError
        found = {_text(prefix, _prefix): _text(router, _router) for prefix, router in value.items()}
        if len(found) != len(value):
            raise ValueError
        return found


def _prefix(text: str) -> str:
    return validate.prefix(text, "", AF_INET)


def _router(text: str) -> str:
    return validate.address(text, "", AF_INET, length=False)


def _text(value: object, rule: Callable[[str], str]) -> str:
    """Give what a rule for NICs makes of a value. Raises ValueError."""
    try:
        if isinstance(value, str) and value:
            return rule(value)
    except NicInvalid:
        pass
    raise ValueError


def _several(value: object, each: Callable[[object], str]) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST:
        raise ValueError
    found = tuple(map(each, value))
    if len(set(found)) != len(found):
        raise ValueError
    return found
