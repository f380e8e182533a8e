"""Keep what is alike on many nodes of one process is there once: rules of packet filters, and paths of settings, what a service can do."""

from __future__ import annotations

from netagent.sync.connection import Connection
from netcommon.host.api.nftables import NETDEV, NftChain, NftRule, NftTable, Put
from netcommon.host.api.requests import NftChange
from netcommon.host.simulated.host import MemoryHost


def filtering() -> MemoryHost:
    """Give a host with a tap, and a chain of two rules."""
    host = MemoryHost()
    host.add_tap("tap0", 1)
    rules = [NftRule(NETDEV, "guard", "guard", text.encode()) for text in ("first", "second")]
    steps = Put(NftTable(NETDEV, "guard", "")), Put(NftChain(NETDEV, "guard", "guard")), *map(Put, rules)
    assert host.execute([NftChange("guard", steps)], stop=True)[0].ok
    return host


def test_rules_of_two_nodes_are_there_once() -> None:
    first, second = (each.nftables.tables[NETDEV, "guard"].rules["guard"] for each in (filtering(), filtering()))
    assert len(first) == 2 and first is second


def test_a_chain_that_is_another_on_one_node_is_as_it_was_on_the_other() -> None:
    first, second = filtering(), filtering()
    more = NftRule(NETDEV, "guard", "guard", b"third")
    assert second.execute([NftChange("guard", (Put(more),))], stop=True)[0].ok
    assert [len(each.view().nft_rules(NETDEV, "guard")) for each in (first, second)] == [2, 3]


def test_paths_of_settings_of_two_nodes_are_there_once() -> None:
    first, second = ({path: path for path in each.kernel.settings._values} for each in (filtering(), filtering()))
    assert first.keys() == second.keys()
    assert all(first[path] is second[path] for path in first if "/tap0/" in path)


def test_what_a_service_can_do_is_there_once() -> None:
    said = {"epoch": "a", "actions": ["nics.create"], "abilities": ["reports"], "version": "1"}
    first, second = (Connection(0.0, 60.0) for _ in range(2))
    assert not first.hello(said) and not second.hello({**said, "actions": list(said["actions"])})
    assert first._actions == {"nics.create"} and first._actions is second._actions and first._abilities is second._abilities
