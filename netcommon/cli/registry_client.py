"""Ask the registry for the command line: its client, what people call things, and how answers are shown.

The registry is a package of its own that nothing of netcommon imports; this names it only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from netcommon.cli.app import App
from netcommon.cli.output import answer, fields, say, table
from runtime import validate
from runtime.errors import HostRefused, NetcommonError, NicInvalid
from runtime.moment import local_time

Item = dict[str, Any]
TIMES = frozenset(
    ("came", "freed", "joined", "made", "reported", "settles", "since", "time", "until")
)  #: fields that are seconds since the epoch
DAILY = 86400.0


def socket_of(app: App) -> str:
    return app.root.rstrip("/") + str(import_module("netregistry.client").SOCKET)


def file_of(app: App) -> str:
    return app.root.rstrip("/") + str(import_module("netregistry.stores.files").FILE)


def store_of(app: App) -> str:
    """Give what keeps the registry: the etcd that the settings name, or the file. Raises SettingsInvalid: neither is guessed."""
    return app.settings().registry_store or file_of(app)


def in_etcd(app: App) -> bool:
    """Tell whether the settings say that an etcd keeps the registry."""
    return store_of(app) != file_of(app)


def served(app: App) -> bool:
    """Tell whether a service runs: it has the file then."""
    return bool(import_module("netregistry.client").served(socket_of(app)))


def as_root(app: App) -> None:
    """Raise HostRefused for everybody but root: the registry's files are root's."""
    if not app.is_root:
        raise HostRefused("the registry's files are for root alone", "run it as root")


def authority_keys(app: App) -> str:
    """Give the folder of the authorities' keys, beside the registry's file."""
    return f"{os.path.dirname(file_of(app))}/authority"


def warn_of_key(app: App, label: str) -> None:
    """Say so where the key of the authority that signs is not on the registry's machine. ``label``: of the authority; "": there is none."""
    path = f"{authority_keys(app)}/{label}.key"
    if label and not os.path.exists(path):
        remedy = f"put it back from a copy ({path}), or netcommon registry authority rotate --lost, after which all join again"
        say(f"netcommon: the key of authority {label}, which signs, is not on this machine, and nobody can join here: {remedy}", err=True)


def signing(items: Iterable[Item]) -> str:
    """Give the ID of the authority that signs, of a list of them; "" where none does."""
    return next((str(item["authority"]["id"]) for item in items if item["signs"]), "")


def client(app: App, role: str = "") -> Any:
    """Give a client, which asks as the operator who types: the history says who it was. ``role``: as somebody else.

    On the registry's machine it asks over the socket, elsewhere by what the machine has joined with: for an operator also as a reader, or
    as the node, which may look at most of it; also where the operator's certificate counts no more. Raises HostRefused.
    """
    make = partial(import_module("netregistry.client").Client, old=_old)
    kind, _, who = role.partition(":")
    if kind in ("", "operator") and served(app):
        name = app.environ.get("SUDO_USER") or app.environ.get("LOGNAME") or "root"
        return make(socket_of(app), role or f"operator:{name}")
    roles = ("operator", "reader", "node") if kind in ("", "operator") else (kind,)
    for place, each in enumerate(roles):
        found = joined(app, each, DAILY)
        if found is not None and who in ("", found.name):
            others = (one for other in roles[place + 1 :] if (one := joined(app, other, DAILY)) is not None and who in ("", one.name))
            certified = import_module("netregistry.certified_client").CertifiedClient
            return certified(found, others, lambda one: make(one.places(app.settings(strict=False).registry_addresses)), _stale)
        if found is not None and kind == "importer" and not served(app):
            advice = f"netcommon registry token create importer {who}, and netcommon registry join URL TOKEN here"
            raise HostRefused(f"this machine has joined as the importer of {found.name}, and not of {who}", advice)
    if kind in ("", "operator"):
        role = role or "operator:root"  # nobody listens there, which it says
    elif (there := None if in_etcd(app) else elsewhere(app)) is not None:  # what says so says how to make a registry here, a second one
        text = f"this machine has joined a registry as {there.role}, and not as {kind} {who}"
        raise HostRefused(text, f"netcommon registry token create {kind} {who}, and netcommon registry join URL TOKEN here")
    return make(socket_of(app), role)


def part_of_place(field: str, typed: str, expected: str) -> str:
    """Give what was typed as one part of a place below /v1. Raises NicInvalid where it would be several, or none: that is another place."""
    if "/" in typed or typed in ("", ".", ".."):
        raise NicInvalid(field, typed, expected)
    return typed


def _stale(refused: NetcommonError, role: str) -> None:
    """Say that a certificate of this machine counts no more, and as whom it was asked instead."""
    say(f"netcommon: {refused}; it is shown to this machine as a {role}", err=True)


def _old(age: int) -> None:
    """Say that what is shown is as it was a while ago."""
    say(f"netcommon: the registry's store has not answered for {age} seconds: what is shown is what was known then", err=True)


def joined(app: App, role: str, every: float) -> Any:
    """Give what this machine has joined with in a role; None where it has not. Raises HostRefused.

    It is renewed if it is time for that; ``every``: after so many seconds the registry is asked which authorities count.
    """
    module, now = import_module("netregistry.credentials"), app.clock.wall()
    found = module.read(app.paths.lib, role)
    if found is None or role == "node" or not (found.due(now) or now >= found.looked + every):
        return found  # a node's are its agent's to renew
    try:
        with import_module("netregistry.client").Client(found.places(app.settings(strict=False).registry_addresses)) as asked:
            return module.refresh(found, asked, now)
    except NetcommonError as error:
        say(f"netcommon: the certificate of {role} {found.name} is not renewed: {error}", err=True)
        return found


def elsewhere(app: App) -> Any:
    """Give what this machine has joined a registry elsewhere with, where the whole of that one is meant; None where the registry is here.

    It is here where a service runs. Else who has joined as an operator means the registry that every other command asks, and not a file
    that lies here; a file is meant before what a reader or a node has joined, who is refused. Raises HostRefused.
    """
    if served(app):
        return None
    if (found := joined(app, "operator", DAILY)) is not None:
        return found
    file = file_of(app)
    if os.path.exists(file) or os.path.exists(file + import_module("netregistry.stores.files").MOVED):
        return None
    return next((found for role in ("reader", "node") if (found := joined(app, role, DAILY)) is not None), None)


# -- what things are called


def network_of(asked: Any, name: str) -> Item:
    """Give the network that a name or UUID means. Raises NicInvalid."""
    return _one(asked, "networks", "network", name, [{"name": name}])


def node_of(asked: Any, name: str) -> Item:
    """Give the node that a name or UUID means. Raises NicInvalid."""
    return _one(asked, "nodes", "node", name, [{"name": name}])


def nic_of(asked: Any, name: str) -> Item:
    """Give the NIC that a UUID, INSTANCE/INDEX, MAC, address, instance or name of its own means. Raises NicInvalid."""
    instance, slash, which = name.rpartition("/")
    if slash:
        found = [item for item in asked.all("nics", instance=instance) if item["label"] == name or item["nic"]["name"] == which]
        return _single("NIC", name, found, "nic")
    if _fits(validate.mac, name):
        return _one(asked, "nics", "nic", name, [{"mac": name}])
    if _fits(validate.address, name):
        return _one(asked, "nics", "nic", name, [{"address": name}])
    return _one(asked, "nics", "nic", name, [{"instance": name}, {"name": name}])


def place_is_free(asked: Any, nic: Mapping[str, Any]) -> None:
    """Raise HostRefused where an instance has a NIC of that index already: INSTANCE/INDEX would name neither of the two from then on."""
    instance, index = nic.get("instance"), nic.get("index")
    for item in asked.all("nics", instance=instance) if instance and index is not None else ():
        if item["nic"]["index"] == index and item["nic"]["cluster"] == nic.get("cluster", ""):
            what = f"NIC {item['label']} is there already ({item['nic']['uuid']})"
            raise HostRefused(what, f"netcommon registry nic set {item['label']} changes it, or give another index")


def whole(asked: Any, place: str, **query: Any) -> tuple[list[Item], str]:
    """Give all items of a list, and the revision that it is of."""
    pages = list(asked.pages(place, **query))
    return [item for page in pages for item in page["items"]], pages[0]["revision"]


def uuid_of(asked: Any, name: str) -> str:
    """Give the UUID of the network, NIC or node that a name, address or MAC means; a UUID is given back. Raises NicInvalid."""
    if validate.is_uuid(name.lower()):
        return name.lower()
    items = asked.get("find", text=name, limit=1000).body["items"]
    found = {item["uuid"] for item in items if name.lower() in (item["label"].lower(), item["text"])}
    if len(found) == 1:
        return str(found.pop())
    what = (
        f"one of them, by its UUID: {', '.join(sorted(found)[:10])}"
        if found
        else "the name of a network, NIC or node: find looks for a part"
    )
    raise NicInvalid("NAME", name, what)


def _one(asked: Any, place: str, kind: str, name: str, queries: Sequence[Mapping[str, str]]) -> Item:
    if validate.is_uuid(name.lower()):
        return dict(asked.get(f"{place}/{name.lower()}").body)
    found = next((found for query in queries if (found := list(asked.all(place, **query)))), [])
    return _single("NIC" if kind == "nic" else kind, name, found, kind)


def _single(what: str, name: str, found: Sequence[Item], kind: str) -> Item:
    if len(found) == 1:
        return found[0]
    command = f"netcommon registry {kind} list"
    if found:
        several = ", ".join(item[kind]["uuid"] for item in found[:10])
        raise NicInvalid(what, name, f"one {what}, not several: {several}; name it by its UUID")
    named = "UUID, INSTANCE/INDEX, MAC or address of a NIC" if kind == "nic" else f"name or UUID of a {kind}"
    raise NicInvalid(what, name, f"the {named} that is there: {command} shows them")


def _fits(rule: Any, name: str) -> bool:
    try:
        rule(name, "")
    except NicInvalid:
        return False
    return True


# -- answers


def show_list(items: Iterable[Item], revision: str, headings: Sequence[str], row: Any, as_json: bool, empty: str) -> None:
    """Print a list: a table, or JSON."""
    items = list(items)
    if as_json:
        answer("registry", revision=revision, items=items)
    else:
        say(table(headings, [row(item) for item in items]) if items else empty)


def show_one(item: Item, kind: str, as_json: bool) -> None:
    """Print one object with all that is said of it."""
    if as_json:
        answer("registry", revision=item["revision"], items=[item])
        return
    lines = [(name, _field(name, value)) for name, value in item[kind].items()]
    lines += [(name, _field(name, value)) for name, value in (item.get("shown") or {}).items()]
    lines += [(name, _field(name, value)) for name, value in item.items() if name not in (kind, "shown", "label")]
    say(fields(lines))


def show_change(said: Any, what: str, dry_run: bool, as_json: bool) -> None:
    """Print what a change has done, or would do."""
    changes = said.body["changes"] if dry_run else []
    value = said.body["body"] if dry_run else said.body
    if as_json:
        answer("registry-change", revision=said.revision, done=not dry_run, value=value, changes=changes)
        return
    say(f"would be {what}" if dry_run else what)
    for change in changes:
        say(f"  {change['key']}: {_difference(change['before'], change['after'])}")


def _difference(before: Any, after: Any) -> str:
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return "made" if before is None else "deleted"
    return ", ".join(
        f"{name} {_field(name, before.get(name)) or '-'} -> {_field(name, each) or '-'}"
        for name, each in after.items()
        if before.get(name) != each
    )


def _field(name: str, value: Any) -> str:
    """Give a field's value as people read it: a time is no number to them."""
    return local_time(value) if name in TIMES and value else text(value)


def text(value: Any) -> str:
    """Give a value of JSON as people read it; "" for what says nothing."""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, dict):
        if set(value) >= {"name", "value"}:
            return f"{value['name']}={value['value']}" + (f" until {local_time(value['until'])}" if value.get("until") else "")
        return " ".join(f"{name}={_field(name, each)}" for name, each in value.items() if text(each))
    if isinstance(value, list):
        return ", ".join(text(each) for each in value)
    return "" if value in (None, 0) else str(value)
