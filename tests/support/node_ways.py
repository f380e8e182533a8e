"""List what the node may have at its own side of a bridge, by which a guest there, 10.0.0.5/24 on eth0, reaches it alone."""

from __future__ import annotations

from tests.support.netns import Namespace, run

#: What is done, ``{}`` being the bridge's own device, and by which address the guest then reaches the node; "" it does not.
WAYS = {
    "an address": (["ip address add 10.0.0.9/24 dev {}"], "10.0.0.9"),
    "a link-local gateway": (["ip address add 169.254.1.1/32 dev {}", "ip route add 10.0.0.5 dev {}"], "169.254.1.1"),
    "a link-local gateway of IPv6": (["ip -6 address add fe80::1/64 dev {} nodad"], "fe80::1%eth0"),
    "a route": (["ip address add 10.0.0.9/32 dev lo", "ip route add 10.0.0.5 dev {}"], "10.0.0.9"),
    "a macvlan": (
        ["ip link add gw0 link {} type macvlan mode private", "ip link set gw0 up", "ip address add 10.0.0.9/24 dev gw0"],
        "10.0.0.9",
    ),
    "a macvlan that is off": (["ip link add gw0 link {} type macvlan mode private"], ""),
    "the kernel's address": ([], ""),
}


def lead(way: str, device: str, guest: Namespace) -> str:
    """Make the way, and return the address by which the guest reaches the node, "" where it does not."""
    commands, address = WAYS[way]
    run("ip", "link", "set", device, "up")
    for command in commands:
        run(*command.format(device).split())
    guest.run("ip", "route", "add", "169.254.1.1", "dev", "eth0")
    return address
