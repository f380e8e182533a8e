"""Options as settings ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from netcommon.options.model import DEFAULTS
from netcommon.options.schema import OPTIONS


def asked(name: str) -> list[dict[str, Any]]:
    """List settings of [nic] that ask for an option, in every way that differs much."""
    values: dict[str, list[Any]] = {
        "link_local": ["eui64"],
        "new_sources": [0, 7],
        "firewall": ["protected", "limited"],
        "node_access": [("none",), ("udp/53",)],
        "rate_in": [8000],
        "rate_out": [8000],
        "addresses": [("192.0.2.9",)],
        "prefixes": [("192.0.2.0/28",)],
        "tap_mac": ["fe:00:00:00:00:01"],
        "uplink_proxy": ["off", "both"],
        "rp_filter": ["off", "strict", "loose"],
        "flows": [("site",)],
        "endpoints": [("console",)],
        "dhcp": ["nfdhcpd", "dnsmasq"],
    }
    return [{name: value} for value in values.get(name) or [not getattr(DEFAULTS, name)]]


class Asked(NamedTuple):
    """One value of an option that is not its default, in one of the modes in which it means something."""

    mode: str
    name: str
    value: Any

    @property
    def text(self) -> str:
        return text(self.value)


def text(value: object) -> str:
    """As a tag would say it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def every() -> Iterator[Asked]:
    """Every option in every mode in which it means something, in every way that differs much: made of the table of options."""
    for option in OPTIONS:
        for mode in option.modes:
            for each in asked(option.name):
                yield from (Asked(mode, name, value) for name, value in each.items())
