"""A kernel without nf_tables: a NIC that is to be guarded is refused with the way out, and nothing of it is left."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from netcommon.host.api.nftables import NETDEV, NftTable, Put
from netcommon.host.api.requests import NftChange
from netcommon.host.linux.host import LinuxHost
from runtime.errors import UNAVAILABLE, HostRefused
from tests.support.sim import Sim, nic

MODES = ("bridged", "bridged, trunk", "routed", "routed, table")
UNUSED = 31  #: a netlink protocol that no kernel has


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    made = Sim(str(tmp_path))
    made.host.nftables.there = False
    return made


@pytest.mark.parametrize("mode", MODES)
def test_refused(sim: Sim, mode: str) -> None:
    with pytest.raises(HostRefused) as refused:
        sim.up(nic(mode))
    assert refused.value.status == UNAVAILABLE == 69
    text = str(refused.value)
    assert "this kernel has no nf_tables" in text and "modprobe nf_tables" in text and "tap0" in text
    assert "switch the spoof guard off, spoof_guard = false in [nic] of the settings" in text
    assert sim.picture() == sim.before and sim.records() == [] and sim.files() == []


@pytest.mark.parametrize("mode", MODES)
def test_switched_off(sim: Sim, mode: str) -> None:
    made = nic(mode, TAGS="netcommon:*:spoof_guard:no")
    sim.up(made)
    assert [record.device for record in sim.records()] == ["tap0"] and sim.picture() != sim.before
    sim.down(made)
    assert sim.picture() == sim.before


@pytest.mark.parametrize("mode", MODES)
def test_gone_since(sim: Sim, mode: str) -> None:
    """Another kernel since, whose record says that the NIC was guarded: its down does not fail for that."""
    sim.host.nftables.there = True
    sim.up(nic(mode))
    sim.host.nftables.flush()
    sim.host.nftables.there = False
    sim.down(nic(mode))
    assert sim.picture() == sim.before and sim.records() == [] and sim.gc() == []


@pytest.fixture
def host() -> Iterator[LinuxHost]:
    """A host whose kernel does not know this kind of socket."""
    made = LinuxHost()
    made.nftables.netlink.PROTOCOL = UNUSED
    yield made
    made.close()


def test_no_such_socket(host: LinuxHost) -> None:
    (said,) = host.execute([NftChange("spoof guard of tap0", (Put(NftTable(NETDEV, "t")),), "or switch it off")], stop=True)
    assert said.errno == errno.EPROTONOSUPPORT
    assert said.text.startswith("spoof guard of tap0: ") and said.text.endswith("; or switch it off")
    now = host.view()
    assert now.nft_table(NETDEV, "t") is None and now.nft_chain(NETDEV, "t", "c") is None
    assert [*now.nft_tables(NETDEV), *now.nft_chains(NETDEV), *now.nft_rules(NETDEV, "t"), *now.nft_elements(NETDEV, "t")] == []
