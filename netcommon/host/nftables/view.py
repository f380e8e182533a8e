"""What nftables holds, as a part of a live view. A kernel without nf_tables holds nothing."""

from __future__ import annotations

import errno

from netcommon.host.api.host import EVERY
from netcommon.host.rtnetlink.attributes import MalformedError
from netcommon.host.rtnetlink.socket import untold
from runtime.errors import HostRefused, TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from netcommon.host.api.nftables import NftChain, NftElement, NftRule, NftTable
    from netcommon.host.nftables.client import Nftables
    from netcommon.host.rtnetlink.attributes import Encoded

    Fact = TypeVar("Fact")


class NftView:
    """Each method raises TryAgain where the kernel gives no complete answer, HostRefused where it may not be asked."""

    _nft: Callable[[], Nftables]  #: opens the socket to ask by, where nobody has yet

    def nft_table(self, family: int, name: str) -> NftTable | None:
        from netcommon.host.nftables import encode as nfencode  # only guarded NICs need it

        body = self._nft_one(nfencode.get_table(family, name))
        if body is None:
            return None
        from netcommon.host.nftables import decode as nfdecode  # the first NIC of a table does not

        return _sane(nfdecode.table, body)

    def nft_tables(self, family: int) -> Sequence[NftTable]:
        from netcommon.host.nftables import decode as nfdecode
        from netcommon.host.nftables import encode as nfencode

        return [_sane(nfdecode.table, body) for body in self._nft_dump(nfencode.dump_tables(family))]

    def nft_chain(self, family: int, table: str, name: str) -> NftChain | None:
        from netcommon.host.nftables import encode as nfencode

        body = self._nft_one(nfencode.get_chain(family, table, name))
        if body is None:
            return None
        from netcommon.host.nftables import decode as nfdecode

        return _sane(nfdecode.chain, body)

    def nft_chains(self, family: int) -> Sequence[NftChain]:
        from netcommon.host.nftables import decode as nfdecode
        from netcommon.host.nftables import encode as nfencode

        return [_sane(nfdecode.chain, body) for body in self._nft_dump(nfencode.dump_chains(family))]

    def nft_chains_of(self, family: int, table: str) -> Sequence[NftChain]:
        return [chain for chain in self.nft_chains(family) if chain.table == table]

    def nft_rules(self, family: int, table: str) -> Sequence[NftRule]:
        from netcommon.host.nftables import decode as nfdecode
        from netcommon.host.nftables import encode as nfencode

        return [_sane(nfdecode.rule, body) for body in self._nft_dump(nfencode.dump_rules(family, table))]

    def nft_elements(self, family: int, table: str, sets: frozenset[str] = EVERY) -> Sequence[NftElement]:
        from netcommon.host.nftables import decode as nfdecode
        from netcommon.host.nftables import encode as nfencode

        names = sorted(sets)
        if not sets:
            told = [_sane(nfdecode.set_name, body) for body in self._nft_dump(nfencode.dump_sets(family, table))]
            names = [name for there, name in told if there == table]
        found: list[NftElement] = []
        for name in names:
            for body in self._nft_dump(nfencode.dump_elements(family, table, name)):
                found += _sane(lambda data: list(nfdecode.elements(data)), body)
        return found

    def nft_set_statements(self, family: int, table: str) -> frozenset[str]:
        from netcommon.host.nftables import decode as nfdecode
        from netcommon.host.nftables import encode as nfencode

        told = [_sane(nfdecode.set_statements, body) for body in self._nft_dump(nfencode.dump_sets(family, table))]
        return frozenset(name for there, names in told if there == table for name in names)

    def nft_rules_of(self, family: int, table: str, chain: str) -> Sequence[NftRule]:
        return [rule for rule in self.nft_rules(family, table) if rule.chain == chain]

    def nft_elements_of(self, family: int, table: str, index: bytes, sets: frozenset[str]) -> Sequence[NftElement]:
        return [element for element in self.nft_elements(family, table, sets) if element.key[:4] == index]

    def _nft_one(self, request: Encoded) -> bytes | None:
        from netcommon.host.nftables.client import NO_NFTABLES, no_such_socket

        try:
            found = self._nft().netlink.get(request)
        except HostRefused as problem:
            if no_such_socket(problem):
                return None
            raise
        if isinstance(found, bytes):
            return found
        if found.errno in NO_NFTABLES or found.errno == errno.ENOENT:
            return None
        raise untold("nftables", found)

    def _nft_dump(self, request: Encoded) -> Sequence[bytes]:
        from netcommon.host.nftables.client import NO_NFTABLES, no_such_socket

        try:
            found = self._nft().netlink.dump(request)
        except HostRefused as problem:
            if no_such_socket(problem):
                return []
            raise
        if isinstance(found, list):
            return found
        if found.errno in NO_NFTABLES or found.errno == errno.ENOENT:
            return []
        raise untold("nftables", found)


def _sane(decoder: Callable[[bytes], Fact], body: bytes) -> Fact:
    """What ``decoder`` makes of a message; one that it cannot read is no answer."""
    try:
        return decoder(body)
    except MalformedError as problem:
        raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem
