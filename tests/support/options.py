"""Options as settings ask for them."""

from __future__ import annotations

from typing import Any

from netcommon.options.model import DEFAULTS


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
        "dhcp": ["nfdhcpd", "dnsmasq"],
    }
    return [{name: value} for value in values.get(name) or [not getattr(DEFAULTS, name)]]
