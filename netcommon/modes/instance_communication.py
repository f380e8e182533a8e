"""Ganeti's instance communication NIC (Ganeti's doc/design-os.rst): tap gnt.com.N in mode routed, by which a guest reaches its node.

What Ganeti's kvm-ifup-os does: every such tap has the address 169.254.169.254, the guest's own (IP, of 169.254.0.0/16) is routed to its
tap, and one dnsmasq of the node, on these taps alone, gives it to the guest by DHCP. A script of the site's own under that name takes
the place of all this (netcommon.lifecycle.site_scripts).
"""

from __future__ import annotations

from netcommon.host.api.facts import AF_INET
from netcommon.operations.address import DeviceAddress
from netcommon.operations.daemon import NodeDaemon
from netcommon.operations.file import NicFile
from netcommon.operations.link import ADDRESS, MASTER, UP, LinkSetting
from netcommon.operations.route import GuestRoute
from netcommon.operations.sysctl import no_ipv6
from netcommon.options.model import COMMUNICATION
from runtime.errors import NicInvalid
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.operations.base import Operation
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

#: Its features, in the order in which they are applied.
FEATURES = ("guard", "access")
MARKED = False  #: Ganeti cannot name another communication tap while any device's `ip link show` has a third line, such as an alias

#: The node's address on every such tap: where cloud guests look for their metadata.
NODE_ADDRESS = "169.254.169.254"

#: That of every such tap, on whichever node: a guest that has migrated goes on with the neighbour it knows. Locally administered.
TAP_MAC = "fe:00:a9:fe:a9:fe"

#: The daemon, and its folder below our state with a file for each guest.
DAEMON = "communication"
HOSTS = "communication/hosts"

#: dnsmasq(8), as kvm-ifup-os configures it: DHCP alone, for the guests in ``hosts`` alone, without a lease file.
OPTIONS = (
    "--conf-file=/dev/null",
    "--pid-file={folder}/pid",
    "--bind-dynamic",
    f"--interface={COMMUNICATION}*",
    "--except-interface=lo",
    "--port=0",
    "--no-hosts",
    "--no-resolv",
    "--no-ping",
    "--leasefile-ro",
    "--dhcp-authoritative",
    "--dhcp-range=169.254.0.0,static,255.255.0.0",
    "--dhcp-hostsdir={folder}/hosts",
)


#: The reader is hypervisor/hv_base.py of Ganeti, GenerateTapName.
ALIASES = (
    "while any device has an alias, Ganeti cannot start another instance with communication on this node "
    '("Failed to parse TUN/TAP interfaces"): set [ganeti] tap_alias = false (docs/communication.md)'
)


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """The guest's own address is routed in the main table, whatever LINK says. dnsmasq comes last: it finds the guest's file there.

    Raises NicInvalid where Ganeti gave no MAC, or no IPv4 address.
    """
    tap, ip = nic.interface, nic.ip.partition("/")[0]
    if not nic.mac:
        raise NicInvalid("MAC", "", "a MAC address: an instance communication NIC needs one")
    if ":" in ip:
        raise NicInvalid("IP", nic.ip, "an IPv4 address, for an instance communication NIC")
    return [
        *(() if options.spoof_guard else (no_ipv6(tap),)),
        LinkSetting(tap, ADDRESS, TAP_MAC),
        LinkSetting(tap, MASTER, 0),
        LinkSetting(tap, UP, True),
        DeviceAddress(AF_INET, tap, NODE_ADDRESS, 32),
        GuestRoute(AF_INET, f"{ip}/32", "", tap),
        NicFile(HOSTS, nic.uuid, nic.uuid, text=f"{nic.mac},{ip}\n", reload=f"dnsmasq:{DAEMON}/pid"),
        NodeDaemon(DAEMON, OPTIONS, ALIASES if settings.tap_alias else ""),
    ]
