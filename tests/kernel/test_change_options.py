"""Every option of a NIC that is up, to another value and back, on the real kernel and Open vSwitch: as a fresh up, and as it was."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kernel.test_doors_parallel import collect, environment
from tests.support.bootstrap import VENV
from tests.support.cases import network, stored
from tests.support.node import Node
from tests.support.options import Asked, every
from tests.support.rundoor import rundoor
from tests.support.sample import sample
from tests.support.snapshot import Snapshot, diff

pytestmark = pytest.mark.sampled(2)

NETWORK = {"NETWORK_SUBNET6": "fd01::/64", "NETWORK_SUBNET": "10.0.0.0/24", "NETWORK_GATEWAY": "10.0.0.9"}
#: A NIC of each mode in which every option of that mode can be had.
BASES: Mapping[str, Mapping[str, str]] = {
    "bridged": environment(MODE="bridged", LINK="br0", **NETWORK),
    "routed": environment(LINK="main", NETWORK_GATEWAY6="fd01::1", **NETWORK),
    "openvswitch": environment(MODE="openvswitch", LINK="ovs0", **NETWORK),
}
MODES = ("bridged", "routed", "openvswitch")


def needs_vm(one: Asked) -> bool:
    """A tap's limit of what it sends needs act_police, a bridge's firewall nf_conntrack_bridge: kernels of containers lack them."""
    return (one.name == "rate_out" and one.mode != "openvswitch") or (one.name == "firewall" and one.mode == "bridged")


def cases() -> list[object]:
    found = [each for mode in MODES for each in sample([one for one in every() if one.mode == mode and not needs_vm(one)], 8)]
    found += [each for each in every() if needs_vm(each)]
    vm = [pytest.mark.vm, pytest.mark.slow]
    return [pytest.param(one, one.mode, id=f"{one.mode}-{one.name}={one.text}", marks=vm if needs_vm(one) else []) for one in found]


@pytest.fixture
def prepared(node: Node, mode: str, request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The NIC's variables; its tap is there, and whatever any option needs."""
    node.router()
    node.forwarding(ipv6=True)
    node.bridge("br0")
    if mode == "openvswitch":
        request.getfixturevalue("ovs").bridge("ovs0")
    for folder in ("/run/hosts", "/run/nfdhcpd", "/etc/netcommon/templates/ovs"):
        Path(folder).mkdir(parents=True)
    Path("/etc/netcommon/config.toml").write_text('[dhcp]\nnfdhcpd_folder = "/run/nfdhcpd"\ndnsmasq_folder = "/run/hosts"\n')
    Path("/etc/netcommon/templates/ovs/site.j2").write_text("priority=5 actions=drop\n")
    node.tap("tap0")
    return BASES[mode]


def up(variables: Mapping[str, str], **more: str) -> Snapshot:
    done = rundoor("kvm-ifup", {**variables, **more})
    assert done.status == 0, done
    return network()


def down(variables: Mapping[str, str]) -> None:
    assert rundoor("kvm-ifdown", variables, variables["INTERFACE"], "hot-remove").status == 0
    collect()


def to(*words: str) -> Snapshot:
    done = subprocess.run([str(VENV / "bin/netcommon"), "change", "tap0", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return network()


def differs(one: Snapshot, other: Snapshot) -> list[str]:
    """Say how they differ; a row of OVSDB that is made anew has another UUID."""
    return [line for line in diff(one, other) if 'qos: ["uuid"' not in line]


@pytest.mark.parametrize(("one", "mode"), cases())
def test_every_option_and_back(prepared: Mapping[str, str], one: Asked, mode: str) -> None:
    up(prepared, TAGS=f"netcommon:0:{one.name}:{one.text}")  # what is made once and stays
    down(prepared)
    fresh = up(prepared, TAGS=f"netcommon:0:{one.name}:{one.text}")
    down(prepared)
    start, record = up(prepared), stored()
    assert differs(fresh, to(f"{one.name}={one.text}")) == []
    assert [each["drift"] for each in stored().values()] == [{}]
    assert differs(start, to("--unset", one.name)) == []
    assert diff(record, stored()) == []
    down(prepared)
