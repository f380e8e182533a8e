"""What a node's kernel has of NICs that bear our mark, read with nothing of netcommon: who asks writes a line, and reads a JSON document.

    {UUID: {"tap": NAME, "mac": MAC, "at": [WHERE...], "addresses": [ADDRESS...], "free": BOOL}, ...}

``mac``: of the guest's NIC, as QEMU was started with it, else as the kernel compares what comes from the tap with; ``at``: the bridge
or switch that the tap is a port of, and what is routed to it; ``addresses``: those of IPv4 that the guest may send from; ``free``: it may
send from any.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tests.lab.leftovers import (
    IFLA_IFALIAS,
    IFLA_IFNAME,
    PROTOCOL,
    RTM_GETLINK,
    RTM_GETROUTE,
    UUID,
    Interrupted,
    address,
    attributes,
    dump,
    switch,
    text,
)

IFLA_MASTER, RTA_DST, RTA_OIF = 10, 1, 4
PIDS = "/run/ganeti/kvm-hypervisor/pid"
NETDEV = re.compile(r"type=tap,id=([^,]+),fd=(\d+)")
DEVICE = re.compile(r"virtio-net-pci,.*netdev=([^,]+)")
MAC = re.compile(r"(?:^|,)mac=([0-9a-f:]{17})")


def number(value: bytes | None) -> int:
    return int.from_bytes(value or b"", sys.byteorder)


def hardware() -> dict[str, str]:
    """Give the MAC of the guest's NIC behind each tap, of NICs that their QEMU was started with."""
    found: dict[str, str] = {}
    for name in os.listdir(PIDS) if os.path.isdir(PIDS) else ():
        try:
            with open(f"{PIDS}/{name}", encoding="ascii") as file:
                process = f"/proc/{int(file.read())}"
            with open(f"{process}/cmdline", encoding="utf-8") as file:
                words = file.read().split("\0")
            macs = {of[1]: mac[1] for word in words if (of := DEVICE.search(word)) and (mac := MAC.search(word))}
            for word in words:
                netdev = NETDEV.fullmatch(word.replace(",vhost=on", ""))
                if netdev and netdev[1] in macs:
                    with open(f"{process}/fdinfo/{netdev[2]}", encoding="ascii") as file:
                        found.update((line.split()[1], macs[netdev[1]]) for line in file if line.startswith("iff:"))
        except (OSError, ValueError):
            continue  # it has just ended, or is just beginning
    return found


def sets() -> dict[str, list[Any]]:
    """Give the elements of the sets by which the kernel compares what comes from taps: name -> elements of all tables."""
    done = subprocess.run(["nft", "-j", "list", "ruleset"], capture_output=True, text=True, check=True)
    found: dict[str, list[Any]] = {}
    for item in json.loads(done.stdout)["nftables"]:
        one = item.get("set", {})
        if one.get("table", "").startswith("netcommon-guard"):
            found.setdefault(one["name"], []).extend(one.get("elem", []))
    return found


def pairs(elements: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Give tap and value of the elements that have both."""
    for element in elements:
        tap, value = element["concat"]
        yield tap, value


def nics() -> dict[str, dict[str, Any]]:
    """Give all NICs of ours. Raises Interrupted, OSError, CalledProcessError."""
    links = [attributes(body, 16) | {0: body[4:8]} for body in dump(socket.NETLINK_ROUTE, RTM_GETLINK, bytes(16))]
    names = {number(link[0]): text(link.get(IFLA_IFNAME)) for link in links}
    routes: dict[int, list[str]] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        for body in dump(socket.NETLINK_ROUTE, RTM_GETROUTE, bytes([family, *bytes(11)])):
            route = attributes(body, 12)
            if body[5] == PROTOCOL and RTA_OIF in route:
                routes.setdefault(number(route[RTA_OIF]), []).append(f"to {address(route.get(RTA_DST))}")
    ports = {line.split()[2] for line in switch() if line.startswith("ovs port ")}
    compared, macs = sets(), hardware()
    found = {}
    for link in links:
        uuid = UUID.match(text(link.get(IFLA_IFALIAS)))
        if not uuid:
            continue
        tap = text(link.get(IFLA_IFNAME))
        master = names.get(number(link.get(IFLA_MASTER)), "")
        bridge = "" if master == "ovs-system" else master
        own = dict(pairs(compared.get("macs", [])))
        found[uuid.group()] = {
            "tap": tap,
            "mac": macs.get(tap) or own.get(tap, ""),
            "at": [*filter(None, [bridge, "switch" if tap in ports else ""]), *sorted(routes.get(number(link[0]), []))],
            "addresses": sorted(value for of, value in pairs(compared.get("ipv4", [])) if of == tap),
            "free": tap in compared.get("free-ipv4", []),
        }
    return found


def main(_arguments: Sequence[str]) -> int:
    for _asked in sys.stdin:
        while True:
            try:
                print(json.dumps(nics()), flush=True)
                break
            except (Interrupted, subprocess.CalledProcessError):
                continue
    return 0
