"""NICs, records and Ganeti's recorded calls, for tests of runtime/."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from runtime.environment import nic_from_environment
from runtime.nic import Nic
from runtime.record import Record

FIXTURES = Path(__file__).parent.parent / "fixtures" / "ganeti"
BOOT = "6a1e2d3c-0000-4000-8000-000000000001"
U1, U2, U3 = (f"{n}{n}{n}{n}{n}{n}{n}{n}-1111-4222-8333-444444444444" for n in "abc")


def environment(**changes: str) -> dict[str, str]:
    """A bridged NIC as Ganeti describes it; changed variables, "" to leave one out."""
    found = {
        "INTERFACE": "tap0",
        "MODE": "bridged",
        "LINK": "br0",
        "BRIDGE": "br0",
        "MAC": "aa:00:00:12:34:56",
        "INSTANCE": "web1.example",
        "INTERFACE_INDEX": "0",
        "INTERFACE_UUID": U1,
        "VLAN": "",
        "PATH": "/sbin:/bin",
    } | changes
    return {variable: value for variable, value in found.items() if value or variable == "VLAN"}


def nic(**changes: str) -> Nic:
    return nic_from_environment(environment(**changes))


def record(given: Nic | None = None, ifindex: int = 7, netns: int = 1) -> Record:
    return Record(given or nic(), ifindex, BOOT, netns)


def calls() -> Iterator[tuple[str, dict[str, str], list[str]]]:
    """Every recorded call: where, its variables, its arguments without the script's name."""
    for path in sorted(FIXTURES.glob("**/calls/*.environ")):
        pairs = (item.partition(b"=") for item in path.read_bytes().split(b"\0") if item)
        variables = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
        arguments = path.with_suffix(".argv").read_bytes().removesuffix(b"\0").split(b"\0")
        yield str(path.relative_to(FIXTURES)), variables, [os.fsdecode(item) for item in arguments[1:]]
    for path in sorted(FIXTURES.glob("**/calls/*.json")):
        call = json.loads(path.read_text())
        yield str(path.relative_to(FIXTURES)), call["env"], call["argv"][1:]


def _mac(number: int) -> str:
    return ":".join(f"{octet:02x}" for octet in ((number | 1) & 0xFEFFFFFFFFFF | 1).to_bytes(6, "big"))


words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=20)
printable = words.filter(str.isprintable)
interfaces = st.from_regex(r"[A-Za-z][A-Za-z0-9_.+@-]{0,14}", fullmatch=True).filter(lambda text: text not in ("lo", "all", "default"))
uuids = st.uuids().map(str)
macs = st.integers(0, (1 << 48) - 1).map(_mac)
vlans = st.builds(
    lambda access, trunks: (f".{access}" if access else "") + "".join(f":{vid}" for vid in sorted(trunks - {access})),
    st.integers(0, 4094),
    st.sets(st.integers(1, 4094), max_size=5),
)
instances = printable.filter(lambda text: "/" not in text and ".." not in text and text != "." and text[0] != "-")
tag_lists = st.lists(st.from_regex(r"[A-Za-z0-9_.+*/:@-]{1,20}", fullmatch=True), max_size=4).map(" ".join)
hosts = st.sampled_from(["10.0.0.5", "192.0.2.7/24", "2001:db8::5", "fe80::1", "fd77:1::9/64", "169.254.0.1"])
#: Text as os.environ gives it: bytes that are no UTF-8 come as lone surrogates.
raw = st.binary(max_size=40).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))
modes = st.sampled_from(["bridged", "routed", "openvswitch", "ext"])


@st.composite
def valid_environments(draw: st.DrawFn) -> dict[str, str]:
    """The variables of any valid NIC, with foreign ones beside them."""
    mode = draw(modes)
    found = {
        "INTERFACE": draw(interfaces),
        "MODE": mode,
        "LINK": draw(interfaces if mode in ("bridged", "openvswitch") else st.sampled_from(["", "100", "main", "br0"])),
        "MAC": draw(macs),
        "IP": draw(hosts if mode == "routed" else st.one_of(st.just(""), hosts)),
        "VLAN": draw(vlans),
        "INSTANCE": draw(st.one_of(st.just(""), instances)),
        "INTERFACE_INDEX": draw(st.one_of(st.just(""), st.integers(0, 65535).map(str))),
        "INTERFACE_UUID": draw(st.one_of(st.just(""), uuids)),
        "INTERFACE_NAME": draw(st.one_of(st.just(""), printable)),
        "TAGS": draw(tag_lists),
        "NETWORK_NAME": draw(st.one_of(st.just(""), printable)),
        "NETWORK_UUID": draw(st.one_of(st.just(""), uuids)),
        "NETWORK_SUBNET": draw(st.sampled_from(["", "10.0.0.0/24", "0.0.0.0/0"])),
        "NETWORK_SUBNET6": draw(st.sampled_from(["", "fd77:1::/64", "fe80::/10"])),
        "NETWORK_GATEWAY": draw(st.sampled_from(["", "10.0.0.1"])),
        "NETWORK_GATEWAY6": draw(st.sampled_from(["", "fd77:1::1"])),
        "NETWORK_MAC_PREFIX": draw(st.sampled_from(["", "aa:77:0a"])),
        "NETWORK_TAGS": draw(tag_lists),
    }
    foreign = draw(st.dictionaries(st.sampled_from(["FOO", "LC_ALL", "X\udcff"]), raw, max_size=2))
    return {variable: value for variable, value in found.items() if value} | foreign
