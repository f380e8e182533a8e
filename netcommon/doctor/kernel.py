"""What the running kernel can do, and how it forwards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from netcommon.doctor.finding import Finding, Patient
from netcommon.doctor.uplinks import shut
from netcommon.host.api.facts import AF_INET, AF_INET6
from netcommon.lifecycle.execute import decode
from netcommon.operations.route import GuestRoute, PrefixRoute

#: Features by the names of netcommon.doctor.probe: who needs it, and what brings it.
FEATURES = {
    "bridge": ("error", "bridged NICs need it", "modprobe bridge"),
    "vlan_filtering": ("warning", "bridged NICs with a VLAN need it", "use a kernel with CONFIG_BRIDGE_VLAN_FILTERING"),
    "tun": ("error", "every tap needs it", "modprobe tun"),
    "rule_protocol": ("error", "it marks our policy rules", "use Linux 4.17 or later"),
    "neighbour_protocol": ("error", "it marks our proxy neighbours", "use Linux 5.2 or later"),
}

#: Modules that only some nodes need.
MODULES = {"8021q": "VLAN interfaces of the host", "vrf": "VRFs of the host", "openvswitch": "the kernel datapath of Open vSwitch"}

FILTERS = ("iptables", "ip6tables", "arptables")  #: whose rules br_netfilter may have frames of bridges pass

RA = 9  #: RTPROT_RA: the route was learned from a router advertisement (rtnetlink(7))


def features(probed: Mapping[str, str]) -> Iterator[Finding]:
    """What trying in a network namespace of its own has shown: "" works, else why not; nothing where it could not be tried."""
    if not probed:
        yield Finding("info", "kernel", "its features were not tried", "run netcommon doctor as root")
    for name, (level, why, remedy) in FEATURES.items():
        if name in probed:
            problem = probed[name]
            yield Finding(level, "kernel", f"no {name}: {problem}; {why}", remedy) if problem else Finding("ok", "kernel", f"{name} works")


def modules(patient: Patient) -> Iterator[Finding]:
    """Modules that are neither loaded nor built in nor installed for the running kernel."""
    folder = patient.at(f"/lib/modules/{os.uname().release}")
    known = ""
    for name in ("modules.builtin", "modules.dep"):
        try:
            with open(f"{folder}/{name}", encoding="utf-8", errors="replace") as stream:
                known += stream.read()
        except OSError:
            continue
    for module, who in MODULES.items():
        there = os.path.isdir(patient.at(f"/sys/module/{module}")) or f"/{module}.ko" in known
        if there:
            yield Finding("ok", "kernel", f"module {module} is there")
        elif module != "openvswitch" or os.path.exists(patient.paths.ovsdb):
            yield Finding("info", "kernel", f"module {module} was not found, for {who}", f"where you need it: modprobe {module}")


def routed_families(patient: Patient) -> set[int]:
    """Return the families in which routed NICs on record have addresses or prefixes: by their routes, else by the NIC's own address."""
    found: set[int] = set()
    for record in patient.records:
        if record.nic.mode == "routed":
            routes = {one.family for one in decode(record)[0] if isinstance(one, GuestRoute | PrefixRoute)}
            found |= routes or {AF_INET6 if ":" in record.nic.ip else AF_INET}
    return found


def forwarding(patient: Patient) -> Iterator[Finding]:
    """Whether packets of routed NICs pass this node in both directions."""
    view, families = patient.view, routed_families(patient)
    yield from _forwarding4(patient, AF_INET in families)
    everything = view.sysctl("net/ipv6/conf/all/forwarding")
    names = {link.index: link.name for link in view.links()}
    learned = sorted({names.get(route.index, "?") for route in view.routes_of(AF_INET6, RA) if route.gateway})
    deaf = [name for name in learned if view.sysctl(f"net/ipv6/conf/{name}/accept_ra") != "2"]
    if everything == "0":
        first = "".join(f"sysctl -w net.ipv6.conf.{name.replace('.', '/')}.accept_ra=2; " for name in deaf)
        yield Finding(
            "error" if AF_INET6 in families else "info",
            "forwarding",
            "net.ipv6.conf.all.forwarding is 0: routed IPv6 NICs are refused",
            f"{first}sysctl -w net.ipv6.conf.all.forwarding=1, and the same in /etc/sysctl.d",
        )
        return
    for link in view.links():
        name = link.name
        if link.kind or name == "lo" or view.sysctl(f"net/ipv6/conf/{name}/accept_ra") != "1":
            continue
        if view.sysctl(f"net/ipv6/conf/{name}/forwarding") == "1":
            yield Finding(
                "warning" if name in learned else "info",
                "forwarding",
                f"net.ipv6.conf.{name}.accept_ra is 1: since this node forwards, {name} ignores router advertisements",
                f"where its default route comes from them: sysctl -w net.ipv6.conf.{name.replace('.', '/')}.accept_ra=2",
            )


def _forwarding4(patient: Patient, needed: bool) -> Iterator[Finding]:
    """Each device's own forwarding decides on what comes in there; ip_forward does nothing but set that of all."""
    off = patient.view.sysctl("net/ipv4/ip_forward") == "0"
    names, doubtful, found = shut(patient, AF_INET) if needed else ([], [], False)
    if off and (names or not found):
        some = f": {', '.join(names)} forward nothing of routed IPv4 NICs" if names else ": interfaces forward IPv4 only if their own is 1"
        yield Finding(
            "error" if needed else "info",
            "forwarding",
            f"net.ipv4.ip_forward is 0{some}",
            "sysctl -w net.ipv4.ip_forward=1, and the same in /etc/sysctl.d",
        )
    elif names:
        settings = " ".join(f"net.ipv4.conf.{name.replace('.', '/')}.forwarding=1" for name in names)
        text = f"forwarding of {', '.join(names)} is 0: what comes in there of routed IPv4 NICs goes no further"
        yield Finding("error", "forwarding", text, f"sysctl -w {settings}, and the same in /etc/sysctl.d")
    elif doubtful:
        text = f"forwarding of {', '.join(doubtful)} is 0, where default routes lead: what comes in there of routed IPv4 NICs ends"
        remedy = "nothing, where that network must not be routed, and guests talk with others; else net.ipv4.conf.DEVICE.forwarding=1"
        yield Finding("info", "forwarding", text, remedy)


def netfilter(patient: Patient) -> Iterator[Finding]:
    """Yield what has br_netfilter send bridged frames through the filters of routed packets: a setting of all bridges, or of one."""
    view = patient.view
    settings = [view.sysctl(f"net/bridge/bridge-nf-call-{name}") for name in FILTERS]
    for name, value in zip(FILTERS, settings, strict=True):
        if value == "1":
            yield Finding(
                "warning",
                "netfilter",
                f"net.bridge.bridge-nf-call-{name} is 1: frames between bridged guests pass {name}' rules for forwarding",
                f"unless you want that: sysctl -w net.bridge.bridge-nf-call-{name}=0",
            )
    for link in view.links_of("bridge"):
        state = view.device_state(link.index)
        for name, value, on in zip(FILTERS, settings, state.bridge.nf_call if state and state.bridge else (), strict=False):
            if on and value == "0":  # without br_netfilter it has no effect
                yield Finding(
                    "warning",
                    "netfilter",
                    f"nf_call_{name} of {link.name} is 1: frames between its guests pass {name}' rules for forwarding",
                    f"unless you want that: ip link set dev {link.name} type bridge nf_call_{name} 0",
                )
