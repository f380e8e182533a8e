"""Name the keys of a registry's store, and the type of the values below each."""

from __future__ import annotations

from hashlib import sha256
from typing import Any
from urllib.parse import quote

from netregistry.model.certificate import Authority, Holder, Token
from netregistry.model.claim import Claim
from netregistry.model.history import Clock, Entry, Ledger, Settings
from netregistry.model.importing import Import
from netregistry.model.kinds import NO_SCOPE
from netregistry.model.network import Network
from netregistry.model.nic import Nic, Report
from netregistry.model.node import Alive, Gone, Node, Reports
from netregistry.model.underlay import Confirmed, Given, Name, NodePrefix, Opened, Placement, RegistryId, Speakers, Stranger, Underlay, Zone

LEDGER, SETTINGS, LEADER, CLOCK, UNDERLAY, OPENED, GIVEN = "ledger", "settings", "leader", "clock", "underlay", "opened", "given"
REGISTRY_ID = "registry-id"

LONGEST_SHOWN = 200  #: characters of an instance's name in a key

#: The first part of a key -> the type of its value.
TYPES: dict[str, Any] = {
    "networks": Network,
    "nics": Nic,
    "nodes": Node,
    "macs": Claim,
    "addresses": Claim,
    "imports": Import,
    "authorities": Authority,
    "certificates": Holder,
    "tokens": Token,
    "seen": Report,
    "reports": Reports,
    "alive": Alive,
    "gone": Gone,
    "history": Entry,
    LEDGER: Ledger,
    SETTINGS: Settings,
    CLOCK: Clock,
    UNDERLAY: Underlay,
    OPENED: Opened,
    GIVEN: Given,
    "prefixes": NodePrefix,
    "strangers": Stranger,
    "speakers": Speakers,
    "confirmed": Confirmed,
    "endpoints": Placement,
    "names": Name,
    "zones": Zone,
    REGISTRY_ID: RegistryId,
}
#: What history covers, and no commit changes without the ledger.
WANTED = frozenset(
    ("networks", "nics", "nodes", "macs", "addresses", "imports", "authorities", "certificates", "tokens", SETTINGS, UNDERLAY)
)


def kind(key: str) -> str:
    """Give the first part of a key."""
    return key.partition("/")[0]


def network(uuid: str) -> str:
    return f"networks/{uuid}"


def nic(uuid: str) -> str:
    return f"nics/{uuid}"


def node(uuid: str) -> str:
    return f"nodes/{uuid}"


def authority(label: str) -> str:
    return f"authorities/{label}"


def certificate(role: str, name: str) -> str:
    return f"certificates/{role}:{name}"


def token(label: str) -> str:
    return f"tokens/{label}"


def imported(cluster: str) -> str:
    return f"imports/{cluster}"


def seen(node: str, nic: str) -> str:
    return f"seen/{node}/{nic}"


def reports(node: str) -> str:
    return f"reports/{node}"


def alive(node: str) -> str:
    return f"alive/{node}"


def gone(node: str) -> str:
    return f"gone/{node}"


def prefix(node: str) -> str:
    return f"prefixes/{node}"


def stranger(node: str) -> str:
    return f"strangers/{node}"


def speakers(node: str) -> str:
    return f"speakers/{node}"


def confirmed(node: str) -> str:
    return f"confirmed/{node}"


def placement(cluster: str, instance: str) -> str:
    """Give the key of an instance's endpoints: with its name, where a key can have that."""
    shown = quote(instance, safe="")
    return f"endpoints/{cluster or NO_SCOPE}/{shown if len(shown) <= LONGEST_SHOWN else sha256(instance.encode()).hexdigest()}"


def name(zone: str, name: str) -> str:
    return f"names/{zone}/{name}"


def zone(zone: str) -> str:
    return f"zones/{zone}"


def mac(scope: str, mac: str) -> str:
    return f"macs/{scope}/{mac}"


def address(scope: str, address: str) -> str:
    return f"addresses/{scope}/{address}"


def history(request: str) -> str:
    return f"history/{request}"


def claims(nic: Nic) -> list[str]:
    """Give the keys of what a NIC claims."""
    found = [address(nic.scope, each) for each in nic.all_addresses]
    return [mac(nic.scope, nic.mac), *found] if nic.mac else found


def own(scope: str, report: Report) -> list[str]:
    """Give the keys of the claims, in a scope, of what a NIC is reported with as its own."""
    return [mac(scope, each) if each == report.mac else address(scope, each) for each in report.own]
