"""The documents of ``--json``, as types: from here and from the models of netcommon.views come the JSON Schemas in docs/schemas.

A field with a default is not always there; one whose name ends with an underscore is called so without it. A field that is added
leaves a schema's version; one that goes, or means something else, raises it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from netcommon.views.explain.model import Explanation
from netcommon.views.live.events import Event
from netcommon.views.live.top import Top
from netcommon.views.topology.model import NodeView
from netcommon.views.trace.trail import Path
from pages import mockcloud_documents
from pages.registry_documents import (
    Registry,
    RegistryChange,
    RegistryCompact,
    RegistryFile,
    RegistryImport,
    RegistryImportGaneti,
    RegistryPages,
    RegistryStatus,
)


class Error(NamedTuple):
    """Every command that fails as a whole says so in this document, on stdout; on stderr the same in words."""

    error: str  #: what is wrong, and what was expected or is to be done
    status: int  #: the exit status (docs/reference/exit-codes.md)
    advice: str  #: what to do next, where the error does not say it


class Outcome(NamedTuple):
    nic: str  #: its name for people: "web1/0", the device, or what was typed
    changed: bool  #: anything was changed, on the host or on record
    text: str  #: what became of it; "" where it failed
    error: str  #: why it failed; "" where it did not
    uuid: str = ""
    device: str = ""


class Outcomes(NamedTuple):
    """What became of each NIC."""

    nics: tuple[Outcome, ...]


class OptionChange(NamedTuple):
    name: str
    before: str
    after: str


class Foretold(NamedTuple):
    nic: str
    uuid: str
    device: str
    options: tuple[OptionChange, ...]
    undone: tuple[str, ...]  #: what would be undone, as it was done
    released: tuple[str, ...]  #: what would go from its record alone, and stay: others need it, or somebody else has it by now
    replaced: tuple[str, ...]  #: in whose place something that would be done comes: it holds until then
    done: tuple[str, ...]  #: what would be done, as an administrator would type it
    error: str = ""  #: why it cannot be told, and would fail; "" where it can
    changed: bool = False  #: anything would be changed, on the host, on record, or of what is kept
    kept: str = ""  #: what would be kept otherwise, such as for a while, though no option becomes another by that


class Change(NamedTuple):
    """Say what would differ."""

    nics: tuple[Foretold, ...]


class Drift(NamedTuple):
    does: str  #: what was done, as an administrator would type it
    differs: str  #: what is so instead


class Idle(NamedTuple):
    does: str  #: what was done, or is on record to be done, as an administrator would type it
    why: str  #: what is missing on the host


class Untold(NamedTuple):
    does: str  #: what was done, as an administrator would type it
    why: str  #: which service does not answer


class Lost(NamedTuple):
    why: str  #: what of the guest's packets is dropped, and by what
    remedy: str  #: what to type or to do


class Would(NamedTuple):
    does: str  #: what repair would do, as an administrator would type it
    differs: str  #: what is so instead


class Checked(NamedTuple):
    nic: str
    uuid: str
    device: str
    state: Literal["applying", "up", "changing", "closing", "reverting"]  #: of its record (docs/lifecycle.md)
    alive: bool  #: its device is there
    good: bool  #: all of it holds
    drift: tuple[Drift, ...]  #: what does not hold
    unknown: tuple[str, ...]  #: kinds of operations on record that this version, or its extensions, do not know
    untold: tuple[Untold, ...]  #: of what nobody can tell just now whether it holds
    owed: tuple[str, ...]  #: what is done when its guest, which is still migrating in, is here
    idle: tuple[Idle, ...]  #: what has no effect just now; none of it is drift
    unguarded: bool  #: adopted: nothing keeps its guest from forging until its next start
    dropped: tuple[Lost, ...]  #: what is dropped though all that was done holds
    would: tuple[Would, ...] = ()  #: of repair --dry-run alone: what would be done, in this order
    error: str = ""  #: of repair --dry-run alone: what the host would refuse; "" where nothing


class Check(NamedTuple):
    """NICs compared with the host."""

    nics: tuple[Checked, ...]


class Explain(NamedTuple):
    """Why NICs are as they are."""

    nics: tuple[Explanation, ...]


class Listed(NamedTuple):
    nic: str
    mode: str
    link: str
    device: str
    ip: str
    mac: str
    vlan: str
    state: str  #: of its record, with ", device gone" or ", host not readable"; "defined": not up; "of a newer version": its record is
    uuid: str


class List(NamedTuple):
    """NICs on record and those defined."""

    nics: tuple[Listed, ...]


class Operation(NamedTuple):
    does: str
    chose: Mapping[str, Any]  #: what was found on the host, and chosen, when it came up
    drift: str  #: what does not hold of it; "" if all does
    shared_with: tuple[str, ...]  #: keys of other records that need it too
    kind: str = ""  #: netcommon.operations; not of one that is not known


class ChangedOption(NamedTuple):
    name: str
    value: str  #: as the settings file would say it
    origin: str  #: "set by change", "set by the registry, revision EPOCH:REVISION", and until when


class Shown(NamedTuple):
    state: str
    nic: Mapping[str, str]  #: the variables that describe it
    operations: tuple[Operation, ...]  #: in the order in which they were done
    alive: bool = False
    environment: Mapping[str, str] = {}  #: every variable that its caller gave
    record: str = ""  #: the file
    ifindex: int = 0
    boot: str = ""
    netns: int = 0
    door: str = ""  #: who called: "kvm-ifup", "cli"
    scripts: bool = False  #: the site's scripts of down are owed
    created: str = ""
    changed: tuple[ChangedOption, ...] = ()  #: the options that were changed while it ran, or are a registry's
    network: tuple[ChangedOption, ...] = ()  #: what a registry says of its network
    dropped: Mapping[str, int] = {}  #: what was counted, by reason


class Show(NamedTuple):
    """Everything about NICs. Of one that is only defined there are state, nic, changed, network and operations."""

    nics: tuple[Shown, ...]


class Option(NamedTuple):
    name: str
    value: Any
    origin: str  #: the place: "[nic]", "TAGS: ..."; of the same name the last one counts


class Plan(NamedTuple):
    """What would be done for a NIC, and undone."""

    nic: Mapping[str, str]  #: the variables that describe it
    options: tuple[Option, ...]
    up: tuple[Mapping[str, Any], ...]  #: the operations: ``kind``, its own fields, and ``does``
    down: tuple[str, ...]


class Define(NamedTuple):
    """A definition that was written, as its file has it; or removed. Beside these fields those of the definition."""

    uuid: str
    path: str = ""  #: the file
    removed: bool = False  #: of --remove: there was one


class Collected(NamedTuple):
    text: str  #: what was found
    why: str  #: it goes, or stays
    action: Literal["removed", "would be removed", "kept", "failed"]


class Gc(NamedTuple):
    """What no NIC needs any more."""

    found: tuple[Collected, ...]


class Adopted(NamedTuple):
    instance: str
    nic: str  #: its index; "" for an instance as a whole
    uuid: str
    device: str
    action: str
    why: str


class Adopt(NamedTuple):
    """NICs of running instances."""

    nics: tuple[Adopted, ...]


class Setting(NamedTuple):
    key: str  #: "hook.timeout"
    value: Any
    source: str  #: "default", or "config.toml:12"


class Config(NamedTuple):
    """The effective settings."""

    settings: tuple[Setting, ...]


class Finding(NamedTuple):
    level: Literal["error", "warning", "info", "ok"]
    topic: str
    text: str
    remedy: str  #: what to type or to do


class Doctor(NamedTuple):
    """What was found on this host."""

    findings: tuple[Finding, ...]


class Action(NamedTuple):
    for_: str  #: what it was installed for: "ganeti", "qemu", "xen"
    what: str
    path: str
    text: str


class Install(NamedTuple):
    """What was done, or would be."""

    actions: tuple[Action, ...]


class Named(NamedTuple):
    instance: str
    state: Literal["done", "pending"]
    names: str  #: those it has records under
    error: str


class DnsList(NamedTuple):
    """Instances on record."""

    instances: tuple[Named, ...]


class Synced(NamedTuple):
    instance: str
    done: tuple[str, ...]
    errors: tuple[str, ...]


class DnsSync(NamedTuple):
    """What was changed in the DNS."""

    instances: tuple[Synced, ...]


class Agent(NamedTuple):
    """How the agent of this node and network namespace is (docs/agent.md)."""

    netcommon: str  #: its version
    pid: int
    netns: int
    state: str
    text: str
    started: float  #: seconds since the epoch
    uptime: float  #: seconds
    turned: float  #: seconds since its loop turned last
    settings: str
    alarms: Mapping[str, str]
    agent: Mapping[str, Any]  #: what it does


#: schema -> its version, its type, and the commands that print it.
class MockcloudImport(NamedTuple):
    """Say what a copy of a cluster has."""

    folder: str
    origin: Literal["ganeti", "registry"]
    revision: str  #: EPOCH:REVISION of a registry's export; "" of Ganeti's
    nodes: int
    networks: int
    nics: int
    placed: int  #: NICs of which it is known on which node they are
    records: int  #: records of NICs that nodes have
    problems: tuple[str, ...]  #: what of Ganeti's configuration could not be read, and is not in the copy


class SettingDiffers(NamedTuple):
    """One setting that differs."""

    node: str  #: whose own settings these are; "": those of all other nodes
    key: str
    before: str
    after: str
    source: str  #: file and line that say the new value, "default", or "not in it"
    needs: str  #: what has to be done for it, besides what changes NICs; "" for nothing


class RehearsedOperation(NamedTuple):
    """One operation."""

    kind: str
    text: str  #: as an administrator would type it


class Refusal(NamedTuple):
    """Say why a NIC would be refused."""

    text: str
    status: int  #: the exit status (docs/reference/exit-codes.md)
    variable: str  #: which value is wrong; "" where it is not one value
    value: str
    expected: str


class Rehearsed(NamedTuple):
    """Say what would become of one NIC."""

    nic: str
    uuid: str
    node: str  #: "" where nobody says on which it is
    running: bool
    device: str  #: on the simulated host
    changed: bool  #: on a host
    recorded: bool  #: on record alone
    options: tuple[OptionChange, ...]
    undone: tuple[RehearsedOperation, ...]
    released: tuple[RehearsedOperation, ...]  #: what would go from its record alone: others need it
    replaced: tuple[RehearsedOperation, ...]  #: in whose place something that would be done comes
    done: tuple[RehearsedOperation, ...]
    needs: tuple[Literal["start", "lease"], ...]  #: all of it holds only after the guest's next start, or when it asks anew by DHCP
    warnings: tuple[str, ...]
    requests: int  #: to the simulated host, of the change
    seconds: float  #: of CPU, of the change on the simulated host
    refused: Refusal | None
    refused_today: Refusal | None  #: why it does not even come up by the present settings


class Upgraded(NamedTuple):
    """Say what an upgrade to this version would come to for one NIC that is up."""

    file: str
    node: str
    nic: str  #: "" where the record cannot be read
    uuid: str
    schema: int  #: of the record; 0 where it cannot be read
    rewritten: bool  #: netcommon upgrade has something to fill in
    also: tuple[RehearsedOperation, ...]  #: what would be done, and was not
    no_more: tuple[RehearsedOperation, ...]  #: what was done, and would not be
    unknown: tuple[str, ...]  #: kinds of operations that this version does not know
    refused: Refusal | None


class MockcloudRehearse(NamedTuple):
    """Say what new settings or tags would come to on a copy of a cluster."""

    nics: int
    nodes: int  #: on which NICs are
    unplaced: int  #: NICs of which nobody says on which node they are
    change: int
    recorded: int  #: whose records alone would become others: nothing follows from it on their hosts
    refused: int
    requests: int  #: to simulated hosts, of all changes
    seconds: float  #: of CPU, of all changes on simulated hosts: no real kernel and no service is in it
    settings: tuple[SettingDiffers, ...]
    notes: tuple[str, ...]
    results: tuple[Rehearsed, ...]
    upgrade: tuple[Upgraded, ...]  #: with --upgrade: each NIC on record


LISTING = tuple(f"registry {kind} {what}" for kind in ("network", "nic", "node") for what in ("list", "show"))
CHANGING = tuple(f"registry network {what}" for what in ("add", "set", "delete", "reserve", "release"))
CHANGING += tuple(f"registry nic {what}" for what in ("add", "set", "unset", "allocate", "reserve", "delete"))
CHANGING += ("registry authority rotate", "registry authority retire", "registry token create", "registry token revoke")
CHANGING += ("registry certificate revoke", "registry join")
CHANGING += ("registry settings", "registry node join", "registry node set", "registry node fence", "registry node forget")
CHANGING += ("registry underlay init", "registry underlay fence")
LOOKING = tuple(f"registry {kind} list" for kind in ("authority", "token", "certificate"))
LOOKING += ("registry node reap", "list --cluster", "registry find", "registry conflicts", "registry history")
LOOKING += tuple(f"registry underlay {what}" for what in ("show", "where", "quarantine"))

DOCUMENTS: dict[str, tuple[int, type, tuple[str, ...]]] = {
    "netcommon-error": (1, Error, ("every command",)),
    "netcommon-define": (1, Define, ("define",)),
    "netcommon-plan": (1, Plan, ("plan",)),
    "netcommon-outcomes": (1, Outcomes, ("up", "down", "change", "repair", "upgrade")),
    "netcommon-list": (1, List, ("list",)),
    "netcommon-show": (1, Show, ("show",)),
    "netcommon-tree": (1, NodeView, ("tree", "graph")),
    "netcommon-explain": (1, Explain, ("explain",)),
    "netcommon-trace": (1, Path, ("trace",)),
    "netcommon-top": (1, Top, ("top",)),
    "netcommon-event": (1, Event, ("events",)),
    "netcommon-change": (1, Change, ("change --dry-run",)),
    "netcommon-check": (1, Check, ("check", "repair --dry-run")),
    "netcommon-gc": (1, Gc, ("gc",)),
    "netcommon-adopt": (1, Adopt, ("adopt",)),
    "netcommon-agent": (1, Agent, ("agent status",)),
    "netcommon-dns-list": (1, DnsList, ("dns list",)),
    "netcommon-dns-sync": (1, DnsSync, ("dns sync",)),
    "netcommon-config": (1, Config, ("config",)),
    "netcommon-doctor": (1, Doctor, ("doctor",)),
    "netcommon-install": (1, Install, ("install",)),
    "netcommon-registry": (1, Registry, (*LISTING, *LOOKING)),
    "netcommon-registry-change": (1, RegistryChange, CHANGING),
    "netcommon-registry-pages": (1, RegistryPages, ("registry pages",)),
    "netcommon-registry-file": (1, RegistryFile, ("registry init", "registry backup", "registry restore", "registry move")),
    "netcommon-registry-import": (1, RegistryImport, ("registry import",)),
    "netcommon-registry-import-ganeti": (1, RegistryImportGaneti, ("registry import --ganeti",)),
    "netcommon-registry-compact": (1, RegistryCompact, ("registry compact",)),
    "netcommon-registry-status": (1, RegistryStatus, ("registry status",)),
    **mockcloud_documents.DOCUMENTS,
    "mockcloud-import": (1, MockcloudImport, ("import",)),
    "mockcloud-rehearse": (1, MockcloudRehearse, ("rehearse",)),
}
