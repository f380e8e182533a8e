"""How the outside reaches this node: the ways into a routing table, and the address that speaks on a link."""

from __future__ import annotations

import errno
from _socket import AF_INET6 as INET6
from _socket import SOCK_CLOEXEC, SOCK_DGRAM, socket

from netcommon.host.attributes import MalformedError, attribute, attributes, number, string, u32
from netcommon.host.encode import FRA_IIFNAME, FRA_PROTOCOL, FRA_TABLE, RULE, dump_rules
from netcommon.host.facts import PROTOCOL
from runtime.errors import HostRefused, TryAgain
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.netlink import Netlink

ALL_NODES = "ff02::1"  #: every IPv6 node on the link (RFC 4291, 2.7.1)
DISCARD = 9  #: any port: nothing is sent there

NO_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EOPNOTSUPP})  #: IPv6 is off since boot


class Reach:
    """The part of a live view that tells it. Every method raises TryAgain where the kernel gives no complete answer."""

    _netlink: Netlink

    def ways_in(self, family: int, table: int) -> Sequence[str]:
        """The interfaces whose packets a rule that is not ours looks up in ``table``."""
        ours = attribute(FRA_PROTOCOL, bytes((PROTOCOL,)))
        found = self._netlink.dump(dump_rules(family), number(FRA_TABLE, table))
        if not isinstance(found, list):
            if found.errno in NO_FAMILY:
                return []
            raise HostRefused(f"the kernel does not list its rules: {found.text or errno.errorcode.get(found.errno, found.errno)}")
        try:
            fields = [attributes(body, RULE.size) for body in found if ours not in body]  # there is one of ours for each guest
            names = [string(each.get(FRA_IIFNAME)) for each in fields if u32(each.get(FRA_TABLE)) == table]
        except MalformedError as problem:
            raise TryAgain(f"the kernel's answer makes no sense: {problem}") from problem
        return [name for name in dict.fromkeys(names) if name]

    def link_local(self, index: int) -> str:
        """The address from which the kernel speaks to all IPv6 nodes on the link: normally its link-local one; "" if it has none yet."""
        if index <= 0:
            return ""
        try:
            asked = socket(INET6, SOCK_DGRAM | SOCK_CLOEXEC)
        except OSError:  # IPv6 is off since boot
            return ""
        try:
            asked.connect((ALL_NODES, DISCARD, 0, index))
            return str(asked.getsockname()[0]).partition("%")[0]
        except OSError:  # it is off on the device, that is gone or down, or its address is still tentative
            return ""
        finally:
            asked.close()
