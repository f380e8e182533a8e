"""Mode openvswitch: the tap is a port of the Open vSwitch bridge LINK; VLAN as access, trunk or hybrid port."""

from __future__ import annotations

from netcommon.operations.link import MTU
from netcommon.operations.ovs import Port
from netcommon.operations.ovs_link import OpenLink, ShutLink, SwitchMtu
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.operations.base import Operation
    from netcommon.options.model import Options
    from netcommon.settings.model import Settings
    from runtime.nic import Nic

#: Its features, in the order in which they are applied; firewall and access refuse it.
FEATURES = ("guard", "firewall", "access", "dhcp")
MARKED = True  #: the device gets an alias of ours

KBIT = 1000

#: What a guest may send at once beyond its rate (kbit): what the rate gives in a tenth of a second, but at least one frame of 64 KiB,
#: which is what a guest hands over as one; the policer drops whatever is longer than its bucket.
SHARE, LEAST = 10, 800


def plan(nic: Nic, settings: Settings, options: Options) -> list[Operation]:
    """The device comes up last, and goes down first: no frame of the guest's comes before its flows, or after them. It has the bridge's
    MTU before it is a port: a smaller one would shrink the bridge's.

    vlan_mode is always said: Open vSwitch takes a tag with trunks for an access port otherwise (ovs-vswitchd.conf.db(5)).
    """
    access, trunks = nic.vlan
    modes = {(True, False): "access", (False, True): "trunk", (True, True): "native-untagged"}
    policing = options.rate_out // KBIT
    port = Port(
        nic.interface,
        nic.link,
        nic.uuid,
        access,
        trunks,
        modes.get((access is not None, bool(trunks)), ""),
        (("netcommon-instance", nic.label),),
        interface_ids(nic),
        policing,
        max(policing // SHARE, LEAST) if policing else 0,
        options.rate_in // KBIT,
    )
    name = (nic.interface, nic.link, nic.uuid)
    first: list[Operation] = [ShutLink(*name), SwitchMtu(nic.interface, MTU, bridge=nic.link)]
    if options.spoof_guard or options.flows:
        from netcommon.modes.openvswitch_flows import flows

        end, made = flows(nic, options)
        return [*first, end, port, made, OpenLink(*name)]
    return [*first, port, OpenLink(*name)]


def interface_ids(nic: Nic) -> tuple[tuple[str, str], ...]:
    """What OVN and whoever follows Open vSwitch's integration guide look for, by the names that Nova writes (os-vif, vif_plug_ovs).

    vm-uuid is a word that tells the guest from others on all nodes: Ganeti passes its scripts no UUID of the instance, so its name.
    """
    found = {"attached-mac": nic.mac, "iface-id": nic.uuid, "iface-status": "active", "vm-uuid": nic.instance}
    return tuple((key, value) for key, value in found.items() if value)
