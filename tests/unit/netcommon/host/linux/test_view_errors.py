"""What the kernel does not tell is never taken for what is not there; and whether to ask again later is told by the errno."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from netcommon.host.api.nftables import Drop, NftTable
from netcommon.host.api.requests import NftChange
from netcommon.host.linux.host import LinuxHost
from netcommon.host.rtnetlink.socket import Reply
from runtime.errors import HostRefused, NetcommonError, TryAgain
from runtime.paths import Paths

READS: dict[str, Callable[[Any], object]] = {
    "link": lambda view: view.link("tap0"),
    "links": lambda view: view.links(),
    "rules": lambda view: view.rules(2),
    "routes": lambda view: view.routes(2, 100),
    "neighbours": lambda view: view.neighbours(2, 7),
    "addresses": lambda view: view.addresses(7),
    "vlans": lambda view: view.vlans(7),
    "carriers": lambda view: view.carriers(10),
    "vlan_states": lambda view: view.vlan_states(7),
    "queue_drops": lambda view: view.queue_drops(),
    "device_state": lambda view: view.device_state(7),
    "port": lambda view: view.port(7),
    "fdb_entry": lambda view: view.fdb_entry(7, "aa:00:00:00:00:01", 0),
    "unanswered": lambda view: view.unanswered(2, 7, "10.0.0.1"),
    "root_qdisc": lambda view: view.root_qdisc(7),
    "filters": lambda view: view.filters(7),
    "nft_table": lambda view: view.nft_table(1, "netcommon-guard-16"),
    "nft_tables": lambda view: view.nft_tables(1),
    "nft_chain": lambda view: view.nft_chain(1, "netcommon-guard-16", "in"),
    "nft_elements": lambda view: view.nft_elements(1, "netcommon-guard-16"),
}


class Mute:
    """A netlink socket whose every answer is the same, or that cannot be used at all."""

    def __init__(self, number: int, unusable: bool) -> None:
        self._number, self._unusable = number, unusable

    def get(self, _request: object) -> Reply:
        if self._unusable:
            self.transact()
        return Reply(self._number)

    def dump(self, *_: object) -> Reply:
        return self.get(None)

    def transact(self, *_: object) -> None:
        problem = OSError(self._number, os.strerror(self._number))
        raise HostRefused(f"netlink: {problem.strerror}") from problem

    def close(self) -> None:
        """Nothing is open."""


def host(number: int, unusable: bool) -> LinuxHost:
    made = LinuxHost(Paths(), 2)
    made.netlink = made.nftables.netlink = Mute(number, unusable)  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(
    ("number", "unusable", "expected"),
    [
        (errno.EBUSY, False, TryAgain),
        (errno.ENOBUFS, False, TryAgain),
        (errno.EINTR, False, TryAgain),
        (errno.EPERM, False, HostRefused),
        (errno.EPERM, True, HostRefused),
        (errno.ECONNREFUSED, True, HostRefused),
    ],
)
@pytest.mark.parametrize("name", READS)
def test_what_cannot_be_read_is_not_empty(name: str, number: int, unusable: bool, expected: type[NetcommonError]) -> None:
    with pytest.raises(expected):
        READS[name](host(number, unusable).view())


@pytest.mark.parametrize("name", [name for name in READS if name.startswith("nft_")])
def test_a_kernel_without_nf_tables_holds_nothing(name: str) -> None:
    for unusable in (False, True):
        assert not READS[name](host(errno.EPROTONOSUPPORT, unusable).view())


@pytest.mark.parametrize(("number", "told"), [(errno.EPERM, False), (errno.EPROTONOSUPPORT, True)])
def test_a_change_of_nftables_fails_for_its_own_reason(number: int, told: bool) -> None:
    """The way out of a kernel without nf_tables is named only there."""
    answer = host(number, True).nftables.execute(NftChange("guard of tap0", (Drop(NftTable(1, "guard")),), "turn it off"))
    assert answer.errno == number and ("turn it off" in answer.text) == told
