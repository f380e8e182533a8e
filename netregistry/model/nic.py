"""Define a NIC as it is wanted, and its report as a node has it."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from netregistry.model import kinds
from netregistry.model.codec import Between
from netregistry.model.kinds import REGISTRY

Index = Annotated[int, Between(0, 65535)]
Mode = Literal["", "bridged", "routed", "openvswitch", "ext"]


class Option(NamedTuple):
    """One option of a NIC that the operator has set: its value as a tag would give it. ``until``: seconds since the epoch; 0: for good."""

    name: kinds.Name
    value: Annotated[str, kinds.OptionText]
    until: kinds.Time = 0.0


class Nic(NamedTuple):
    """A NIC as it is wanted."""

    uuid: kinds.Uuid
    cluster: kinds.Cluster = ""
    master: kinds.Master = REGISTRY
    belongs: Literal["instance", "server", "other"] = "instance"
    instance: kinds.Instance = ""
    index: Index | None = None  # type: ignore[assignment]  # the tuple's method of this name is not wanted
    name: kinds.NameOrNone = ""
    owner: kinds.NameOrNone = ""
    mac: kinds.Mac = ""
    network: kinds.UuidOrNone = ""
    ip: kinds.AddressOrNone = ""  #: the address that its hypervisor knows
    addresses: Annotated[tuple[kinds.Address, ...], kinds.Sixteen] = ()  #: further ones, of the registry
    mode: Mode = ""
    link: kinds.Link = ""
    vlan: kinds.Vlan = ""
    model: kinds.NameOrNone = ""
    tags: Annotated[tuple[kinds.Tag, ...], kinds.Hundred] = ()
    options: Annotated[tuple[Option, ...], kinds.Hundred] = ()
    primary: bool = False
    reserved: bool = False  #: what it had stays reserved for its instance after its deletion
    made: kinds.Time = 0.0
    transient: bool = False  #: the node that is its master has found it, and has never had a definition of it

    @property
    def all_addresses(self) -> tuple[str, ...]:
        """Give its addresses, each once: the one that its hypervisor knows first."""
        return tuple(dict.fromkeys((self.ip, *self.addresses) if self.ip else self.addresses))

    @property
    def scope(self) -> str:
        """Name where its MAC and addresses are one NIC's alone: its network, else its cluster, else all NICs that have neither."""
        return self.network or self.cluster or kinds.NO_SCOPE

    @property
    def goes_ahead(self) -> bool:
        """Tell whether an operator has said of the NIC what a node must know before its guest comes: options, further addresses."""
        return bool(self.cluster and (self.options or self.addresses))

    @property
    def label(self) -> str:
        """Name the NIC for people: "web1/0", "web1 net1", or its UUID."""
        which = self.name if self.index is None else f"{self.index}"
        return f"{self.instance}/{which}" if self.instance and which else self.instance or self.name or self.uuid


class Report(NamedTuple):
    """One NIC as a node has it. Only that node writes it."""

    nic: kinds.Uuid
    state: Literal["running", "stopped", "incoming"]
    tap: kinds.NameOrNone = ""
    mac: kinds.Mac = ""
    ip: kinds.AddressOrNone = ""
    addresses: Annotated[tuple[kinds.Address, ...], kinds.Hundred] = ()  #: all that are in use
    prefixes: Annotated[tuple[kinds.Prefix, ...], kinds.Hundred] = ()  #: that are its guest's as a whole: its IP is one, or an option
    mode: Mode = ""
    link: kinds.Link = ""
    vlan: kinds.Vlan = ""
    model: kinds.NameOrNone = ""
    options: Annotated[tuple[Option, ...], kinds.Hundred] = ()  #: in force
    applied: kinds.NameOrNone = ""  #: EPOCH:REVISION of what is in force
    refused: kinds.Note = ""  #: why what is wanted is not
    drift: Annotated[tuple[kinds.Name, ...], kinds.Hundred] = ()
    since: kinds.Time = 0.0
    pending: Annotated[tuple[kinds.Name, ...], kinds.Hundred] = ()  #: fields that it has as they are wanted only after its next start
    #: The node that had it as well, or to which it came, when it stopped here: where its guest has gone. The registry alone says it.
    moved_to: kinds.UuidOrNone = ""
    came: kinds.Time = 0.0  #: since when, without a break, the node says that it has it, and not stopped. The registry alone says it
    #: The node that still said that its guest runs there when the guest, announced here as incoming, came to run here: two agents tell
    #: their halves of one migration, and the target's may be the first. The registry alone says it, and its leader takes it away, with
    #: ``settles`` (about then), when the source has had its time by the leader's clock.
    came_from: kinds.UuidOrNone = ""
    settles: kinds.Time = 0.0

    @property
    def own(self) -> tuple[str, ...]:
        """Give what its guest has as its own, the MAC and the address, and not by an option alone; none where it is stopped."""
        return () if self.state == "stopped" else tuple(each for each in dict.fromkeys((self.mac, self.ip)) if each)

    @property
    def uses(self) -> tuple[str, ...]:
        """Give the MAC and the addresses that its guest has, each once; none where it is stopped."""
        if self.state == "stopped":
            return ()
        return tuple(each for each in dict.fromkeys((self.mac, self.ip, *self.addresses)) if each)

    @property
    def whole(self) -> tuple[str, ...]:
        """Give the prefixes of which its guest has every address, each once; none where it is stopped."""
        return () if self.state == "stopped" else tuple(dict.fromkeys(self.prefixes))
