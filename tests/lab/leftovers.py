"""What of ours there is on a node, read with nothing of netcommon: the tests' own view of the kernel, Open vSwitch and the folders.

As a program (tests.support.python tests.lab.leftovers) it prints one thing a line.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator, Sequence

PROTOCOL = 174  #: of our rules, routes, addresses and proxy neighbours
STATE = "/run/netcommon"
BESIDES = re.compile("locks|agent|settings[.]json|netns[.].*")  #: what in there is no NIC's
NIC_FILES = "/run/ganeti/kvm-hypervisor/nic"
OVSDB = "/run/openvswitch/db.sock"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

NETLINK_NETFILTER = 12
NLMSG = struct.Struct("=IHHII")
REQUEST = 0x301  #: NLM_F_REQUEST | NLM_F_DUMP
INTERRUPTED = 0x10
NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_GETLINK, RTM_GETADDR, RTM_GETROUTE, RTM_GETNEIGH, RTM_GETRULE = 18, 22, 26, 30, 34
NFT_GETTABLE = 0x0A01
NTF_PROXY = 8

IFLA_IFNAME, IFLA_IFALIAS = 3, 20


class Interrupted(Exception):
    """The kernel says that a dump is not whole, or a daemon did not answer: ask again."""


def dump(family: int, kind: int, request: bytes) -> Iterator[bytes]:
    """The messages' bodies, without their headers. Raises Interrupted, OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family) as asked:
        asked.send(NLMSG.pack(NLMSG.size + len(request), kind, REQUEST, 1, 0) + request)
        while True:
            data = asked.recv(1 << 17)
            while data:
                length, told, flags, _, _ = NLMSG.unpack_from(data)
                if flags & INTERRUPTED:
                    raise Interrupted
                if told == NLMSG_DONE:
                    return
                if told == NLMSG_ERROR:
                    raise OSError(-int.from_bytes(data[16:20], sys.byteorder, signed=True), "dump")
                yield data[NLMSG.size : length]
                data = data[(length + 3) & ~3 :]


def attributes(body: bytes, start: int) -> dict[int, bytes]:
    """A message's attributes by type, from ``start`` on."""
    found = {}
    while start + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, start)
        found[kind & 0x3FFF] = body[start + 4 : start + length]
        start += max((length + 3) & ~3, 4)
    return found


def text(value: bytes | None) -> str:
    return (value or b"").rstrip(b"\0").decode(errors="replace")


def address(value: bytes | None) -> str:
    if value is None:
        return "default"
    return socket.inet_ntop(socket.AF_INET if len(value) == 4 else socket.AF_INET6, value)


def kernel() -> Iterator[str]:
    """Rules, routes, proxy neighbours and addresses of our protocol, aliases, tables of nftables."""
    for family in (socket.AF_INET, socket.AF_INET6):
        asked = bytes([family, *bytes(11)])
        for body in dump(socket.NETLINK_ROUTE, RTM_GETRULE, asked):
            found = attributes(body, 12)
            if found.get(21) == bytes([PROTOCOL]):
                yield f"rule iif {text(found.get(3))} "
        for body in dump(socket.NETLINK_ROUTE, RTM_GETROUTE, asked):
            found = attributes(body, 12)
            if body[5] == PROTOCOL:
                yield f"route {address(found.get(1))} device {int.from_bytes(found.get(4, b''), sys.byteorder)}"
        for body in dump(socket.NETLINK_ROUTE, RTM_GETNEIGH, bytes([family, *bytes(9), NTF_PROXY, 0])):
            found = attributes(body, 12)
            if found.get(12) == bytes([PROTOCOL]):
                yield f"proxy neighbour {address(found.get(1))}"
    for body in dump(socket.NETLINK_ROUTE, RTM_GETADDR, bytes(8)):
        found = attributes(body, 8)
        if found.get(11) == bytes([PROTOCOL]):
            yield f"address {address(found.get(1))}"
    for body in dump(socket.NETLINK_ROUTE, RTM_GETLINK, bytes(16)):
        found = attributes(body, 16)
        alias = text(found.get(IFLA_IFALIAS))
        if UUID.match(alias):
            yield f"alias {text(found.get(IFLA_IFNAME))} {alias}"
    for body in dump(NETLINK_NETFILTER, NFT_GETTABLE, bytes(4)):
        name = text(attributes(body, 4).get(1))
        if name.startswith("netcommon"):
            yield f"nftables {body[0]} {name}"


def switch() -> Iterator[str]:
    """Ports and interfaces of Open vSwitch with our external_ids. Raises Interrupted, OSError."""
    if not os.path.exists(OVSDB):
        return
    asked = [{"op": "select", "table": table, "where": [], "columns": ["name", "external_ids"]} for table in ("Port", "Interface")]
    with socket.socket(socket.AF_UNIX) as database:
        database.settimeout(5)
        database.connect(OVSDB)
        database.sendall(json.dumps({"method": "transact", "params": ["Open_vSwitch", *asked], "id": 1}).encode())
        data = b""
        while True:
            more = database.recv(1 << 16)
            if not more:
                raise Interrupted
            data += more
            try:
                answer = json.loads(data)
                break
            except ValueError:
                continue  # the rest is still to come
    for table, result in zip(("port", "interface"), answer["result"], strict=True):
        for row in result["rows"]:
            ids = dict(row["external_ids"][1])
            if "netcommon-uuid" in ids:
                yield f"ovs {table} {row['name']} {ids['netcommon-uuid']}"


def files() -> Iterator[str]:
    """Records, links and owners of ours, and those of Ganeti's nic/ files that Ganeti does not write."""
    for top in (STATE, NIC_FILES):
        for folder, folders, names in os.walk(top):
            if folder == STATE:
                folders[:] = [name for name in folders if not BESIDES.fullmatch(name)]
            for name in (*names, *(name for name in folders if os.path.islink(f"{folder}/{name}"))):
                path = f"{folder}/{name}"
                if UUID.fullmatch(name) if top == NIC_FILES else not BESIDES.fullmatch(name):
                    try:
                        yield f"file {path} {os.readlink(path) if os.path.islink(path) else ''}"
                    except FileNotFoundError:
                        continue


def leftovers(quick: bool = False) -> list[str]:
    """All of it; ``quick``: the files alone, if there are any."""
    while True:
        try:
            found = list(files())
            return found if found and quick else [*found, *kernel(), *switch()]
        except Interrupted:
            continue


def main(_arguments: Sequence[str]) -> int:
    for thing in leftovers():
        print(thing)
    return 0
