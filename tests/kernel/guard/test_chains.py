"""The NIC's own base chains: where they are hooked is part of the guard, and what the kernel refuses is told as what it is."""

from __future__ import annotations

import errno
import json

import pytest

from netcommon.host.api.nftables import INGRESS, NETDEV, Drop, NftChain, NftTable, Put
from netcommon.host.api.requests import NftChange
from netcommon.host.linux.host import LinuxHost
from netcommon.operations.guard.egress_filter import NAME
from netcommon.operations.guard.table import table_of
from tests.kernel.guard import paths
from tests.kernel.guard.test_windows import FORGED, GUARDED
from tests.kernel.test_doors_parallel import good
from tests.kernel.test_rate import drift, mend
from tests.support.netns import run

TABLE = table_of("tap0")


def listed(family: str, table: str, chain: str) -> dict[str, object]:
    """The chain as nft(8) has it."""
    items = json.loads(run("nft", "-j", "list", "chain", family, table, chain))["nftables"]
    found: dict[str, object] = next(item["chain"] for item in items if "chain" in item)
    return {name: found.get(name) for name in ("hook", "prio", "dev")}


@pytest.mark.parametrize("network", ["bridged"], indirect=True)
@pytest.mark.parametrize(("hook", "priority"), [("ingress", 100), ("egress", -300)])
def test_hooked_elsewhere(network: paths.Network, hook: str, priority: int) -> None:
    """By hand, with the same name and rules: check says so, and repair puts it where it was."""
    network.up(GUARDED)
    name = f"in-{json.loads(run('ip', '-j', 'link', 'show', 'dev', 'tap0'))[0]['ifindex']}"
    before, whole = listed("netdev", TABLE, name), run("nft", "list", "table", "netdev", TABLE)
    lines = whole.split(f"chain {name} {{")[1].split("}")[0].splitlines()
    kept = [line for line in lines if "comment" in line or "goto" in line]
    made = "\n".join((f"{{ type filter hook {hook} device tap0 priority {priority}; policy accept;", *kept, "}"))
    run("nft", f"delete chain netdev {TABLE} {name}\nadd chain netdev {TABLE} {name} {made}")
    assert listed("netdev", TABLE, name) != before
    assert [line for line in drift() if f"chain {name} is not as we made it" in line]
    mend()
    assert listed("netdev", TABLE, name) == before and good() == ["tap0"]
    assert network.seen({("forged", "all"): FORGED}) == {("forged", "all"): frozenset()}


@pytest.mark.parametrize("network", ["bridged"], indirect=True)
@pytest.mark.parametrize(("hook", "priority"), [("postrouting", 100), ("forward", -300)])
def test_delivery_hooked_elsewhere(network: paths.Network, hook: str, priority: int) -> None:
    """The same of the chain that all NICs share."""
    network.up(GUARDED)
    place = "bridge", NAME, "postrouting"
    before, rules = listed(*place), [line for line in run("nft", "list", "chain", *place).splitlines() if "@" in line]
    words = " ".join(place)
    made = [f"delete chain {words}", f"add chain {words} {{ type filter hook {hook} priority {priority}; }}"]
    run("nft", "\n".join((*made, *(f"add rule {words} {rule}" for rule in rules))))
    assert listed(*place) != before
    assert [line for line in drift() if "chain postrouting is not hooked as we made it" in line]
    mend()
    assert listed(*place) == before and good() == ["tap0"]


@pytest.mark.parametrize("network", ["bridged"], indirect=True)
def test_what_this_kernel_does_not_support(network: paths.Network) -> None:
    """A hook for a chain that has none: that is no reason to load nf_tables, which is there."""
    host = LinuxHost()
    table, plain = NftTable(NETDEV, "t"), NftChain(NETDEV, "t", "c")
    hooked = plain._replace(hook=INGRESS, priority=1, device="tap0")
    try:
        assert [answer.ok for answer in host.execute([NftChange("a chain", (Put(table), Put(plain)), "or not")], stop=True)] == [True]
        (said,) = host.execute([NftChange("a hook", (Put(hooked),), "or not")], stop=True)
        assert host.execute([NftChange("all", (Drop(table),), "or not")], stop=True)[0].ok
    finally:
        host.close()
    assert said.errno == errno.EINVAL
    assert said.text == "a hook: nf_tables of this kernel does not support it (Operation not supported); or not"
