"""netcommon registry authority, token, certificate and join: who gets in from other machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import click

from netcommon.cli.app import App
from netcommon.cli.commands.registry_objects import body_of, given_argument
from netcommon.cli.duration import seconds_of
from netcommon.cli.output import answer, json_option, say
from netcommon.cli.registry_client import (
    as_root,
    authority_keys,
    client,
    elsewhere,
    in_etcd,
    node_of,
    part_of_place,
    served,
    show_change,
    show_list,
    signing,
    text,
    warn_of_key,
    whole,
)
from runtime import membership, validate
from runtime.errors import HostRefused
from runtime.membership import Membership
from runtime.moment import local_time

ROLES = ("node", "operator", "importer", "reader")
LONGEST = 1024  #: bytes that are read for a token
role_argument = click.argument("role", type=click.Choice(ROLES))


def module_of(name: str) -> Any:
    """Import a module that needs the library for certificates. Raises HostRefused where that is not there."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        authority = import_module("netregistry.authority")
        if (error.name or "").partition(".")[0] != authority.LIBRARY:
            raise
        raise HostRefused(f"certificates need {authority.LIBRARY}", authority.GET_IT) from None


def _time(seconds: float) -> str:
    return local_time(seconds) if seconds else ""


def _named(asked: Any, role: str, name: str) -> str:
    """Give the name of a holder: a node's is its UUID."""
    if role == "node" and name and not validate.is_uuid(name.lower()):
        return str(node_of(asked, name)["node"]["uuid"])
    return name


# -- authorities


@click.group("authority")
def authority() -> None:
    """The authority that signs certificates.

    Its key is on the machines that sign: /var/lib/netregistry/authority, for root alone. A copy of it belongs where backups are kept.
    """


@authority.command("list")
@json_option
@click.pass_obj
def authority_list(app: App, as_json: bool) -> None:
    """List the authorities whose certificates count."""
    with client(app) as asked:
        items, revision = whole(asked, "authorities")

    def row(item: Any) -> tuple[Any, ...]:
        one = item["authority"]
        return one["id"], "signs" if item["signs"] else "counts", _time(one["until"]), one["fingerprint"]

    show_list(items, revision, ("ID", "STATE", "UNTIL", "FINGERPRINT"), row, as_json, "no authority: authority rotate makes one")
    if served(app):
        warn_of_key(app, signing(items))


@authority.command("rotate")
@click.option(
    "--lost",
    is_flag=True,
    help="The key of the one that signs is lost: nobody will know the new one, and all join again. Those before count until retired.",
)
@click.option(
    "--stolen",
    is_flag=True,
    help="Somebody else has the key of one that counts: those before count no more at once, nobody is let in by them, and all join again.",
)
@json_option
@click.pass_obj
def authority_rotate(app: App, lost: bool, stolen: bool, as_json: bool) -> None:
    """Make another authority, which signs from now on.

    On the registry's machine, where its key is made; elsewhere it is refused. The one before counts until it is retired. Agents learn of
    the new one within an hour, and renew their certificates; certificate list shows by which authority each is. With --lost and --stolen it
    is done whatever rotation is under way.
    """
    as_root(app)
    if lost and stolen:
        raise click.UsageError("--stolen does what --lost does, and ends those before: one of the two")
    _signed_here(app)
    x509, keys = module_of("netregistry.authority.x509"), module_of("netregistry.authority.key_files")
    with client(app) as asked:
        items, _revision = whole(asked, "authorities")
        before = None
        if items and not (lost or stolen):
            now = x509.read_authority(next(item["authority"]["certificate"] for item in items if item["signs"]))
            key = keys.key(authority_keys(app), now.id)
            if not key:
                where = f"{authority_keys(app)}/{now.id}.key"
                remedy = f"do it where it is, or put it back ({where}); --lost if that cannot be"
                raise HostRefused(f"the key of authority {now.id} is not on this machine", remedy)
            before = now, key
        made = x509.make_authority(app.clock.wall(), before)
        keys.keep(authority_keys(app), made)
        wanted = {"certificate": made.authority.certificate, "cross": made.authority.cross}
        try:
            said = asked.change("POST", "authorities", {**wanted, "alone": True} if stolen else wanted)
        except import_module("netregistry.client").Problem as refused:
            if refused.undone:
                keys.forget(authority_keys(app), made.authority.id)
            raise
    over = [str(item["authority"]["id"]) for item in items] if stolen else []
    for label in over:
        keys.forget(authority_keys(app), label)
    ended = f"; {', '.join(over)} {'counts' if len(over) == 1 else 'count'} no more" if over else ""
    sentence = f"authority {made.authority.id} signs from now on, fingerprint {made.authority.fingerprint}{ended}"
    show_change(said, sentence, False, as_json)


def _signed_here(app: App) -> None:
    """Raise HostRefused where the service that signs is another machine's: the new key would be made here, and nothing would sign by it."""
    found = None if in_etcd(app) else elsewhere(app)
    if found is not None:
        remedy = "do it on the registry's machine, while its service runs: there is the key of the one before, too"
        where = text(list(found.addresses))
        raise HostRefused(f"the key would be made on this machine, and the registry at {where} signs where it is", remedy)


@authority.command("retire")
@click.argument("label", metavar="ID")
@click.option("--force", is_flag=True, help="Also while somebody has no certificate by another one: who has none is out, and joins again.")
@json_option
@click.pass_obj
def authority_retire(app: App, label: str, force: bool, as_json: bool) -> None:
    """Let nothing count any more that an authority has signed.

    Open streams of such certificates are cut at once. While somebody's latest certificate is by it, or is not used yet, that is refused,
    and says whose: they go over by themselves, unless its key is lost.
    """
    as_root(app)
    with client(app) as asked:
        said = asked.change("DELETE", f"authorities/{part_of_place('ID', label, 'one of authority list')}", force=force)
    module_of("netregistry.authority.key_files").forget(authority_keys(app), label)
    show_change(said, f"authority {label} counts no more", False, as_json)


# -- tokens


@click.group("token")
def token() -> None:
    """Tokens: each lets one machine join, once."""


@token.command("create")
@role_argument
@click.argument("name", default="", metavar="[NAME]")
@click.option("--for", "duration", default="24h", metavar="DURATION", help="For how long it is good: 10m, 24h, 7d; at most 30 days.")
@json_option
@click.pass_obj
def token_create(app: App, role: str, name: str, duration: str, as_json: bool) -> None:
    """Make a token, and print it.

    It is shown once; the registry keeps a hash of it. For a node without a name: a new one. With the name of one that has joined: that one
    again. For an operator or reader the name of the person, for an importer that of the Ganeti cluster.
    """
    joining = import_module("netregistry.joining")
    with client(app) as asked:
        items, _revision = whole(asked, "authorities")
        if not items:
            raise HostRefused("this registry has no authority", "netcommon registry authority rotate, on its machine, makes one")
        made = joining.make(role, next(item["authority"]["fingerprint"] for item in items if item["signs"]))
        wanted = {"id": made.id, "proof": made.proof, "role": role, "name": _named(asked, role, name), "seconds": seconds_of(duration)}
        said = asked.change("POST", "tokens", wanted)
    if served(app):
        warn_of_key(app, signing(items))
    if as_json:
        answer("registry-change", revision=said.revision, done=True, value={**said.body, "token": str(made)}, changes=[])
        return
    say(str(made))
    say(f"netcommon: good until {_time(said.body['until'])}: netcommon registry join URL - on the other machine reads it", err=True)


@token.command("list")
@json_option
@click.pass_obj
def token_list(app: App, as_json: bool) -> None:
    """List tokens, and who has used them."""
    with client(app) as asked:
        items, revision = whole(asked, "tokens")

    def row(item: Any) -> tuple[Any, ...]:
        state = f"used by {item['by']}" if item["used"] else "late" if item["until"] <= app.clock.wall() else "good"
        return item["id"], item["role"], item["name"] or "any", state, _time(item["until"])

    show_list(items, revision, ("ID", "ROLE", "NAME", "STATE", "UNTIL"), row, as_json, "no tokens")


@token.command("revoke")
@click.argument("label", metavar="ID")
@json_option
@click.pass_obj
def token_revoke(app: App, label: str, as_json: bool) -> None:
    """Take a token back.

    It is named by its ID (token list), or by all of it, of which only the ID is sent on.
    """
    parts = label.split(".")
    label = parts[1] if len(parts) > 1 and parts[0] in ROLES else parts[0]
    with client(app) as asked:
        said = asked.change("DELETE", f"tokens/{part_of_place('ID', label, 'one of token list')}")
    show_change(said, f"token {label} taken back", False, as_json)


# -- certificates


@click.group("certificate")
def certificate() -> None:
    """Who has certificates, and from when on they count no more."""


@certificate.command("list")
@json_option
@click.pass_obj
def certificate_list(app: App, as_json: bool) -> None:
    """List who has certificates, until when, by which authority.

    STATE foreign: the authority counts no more, nor does the certificate. Two authorities: the latest certificate is by the second one, and
    nobody has come by it yet.
    """
    with client(app) as asked:
        items, revision = whole(asked, "certificates")
        names = {each["node"]["uuid"]: each["node"]["name"] for each in asked.all("nodes")}

    def row(item: Any) -> tuple[Any, ...]:
        one = item["certificate"]
        ended = one["until"] <= app.clock.wall()
        state = "revoked" if item["revoked"] else "ended" if ended else "foreign" if item.get("foreign") else "counts"
        by = f"{one['before']}, then {one['authority']}" if one.get("before") else one["authority"]
        return one["role"], names.get(one["name"], one["name"]), state, _time(one["until"]), by

    show_list(items, revision, ("ROLE", "NAME", "STATE", "UNTIL", "AUTHORITY"), row, as_json, "nobody has a certificate")


@certificate.command("revoke")
@role_argument
@click.argument("name", metavar="NAME")
@json_option
@click.pass_obj
def certificate_revoke(app: App, role: str, name: str, as_json: bool) -> None:
    """Let no certificate of somebody count any more that there is now.

    Its open streams are cut at once. By another token it may join again. A name of which no certificate is known is revoked all the same,
    for a registry that was restored does not know them all; a warning says so.
    """
    with client(app) as asked:
        meant = _named(asked, role, name)
        known = any((one["certificate"]["role"], one["certificate"]["name"]) == (role, meant) for one in asked.all("certificates"))
        said = asked.change("POST", "certificates/revoke", {"role": role, "name": meant})
    if not known:
        say(f"netcommon: no certificate of {role} {name} is known: netcommon registry certificate list shows who has one", err=True)
    show_change(said, f"certificates of {role} {name} revoked", False, as_json)


# -- on the other machine


@click.command("join")
@click.argument("urls", metavar="URL[,URL]...")
@click.argument("token", metavar="TOKEN")
@given_argument
@click.option("--name", default="", metavar="NODE", help="What the node is called; without it the machine's host name.")
@json_option
@click.pass_obj
def join(app: App, urls: str, token: str, given: tuple[str, ...], name: str, as_json: bool) -> None:
    """Let this machine join a registry elsewhere, by a token.

    A key is made here, which stays here, and a certificate is got for it: /var/lib/netcommon/certificates. With the token of a node the
    machine is one, by the UUID in /var/lib/netcommon/node.json, which is made if need be; FIELD=VALUE as in node join; of one that has
    joined before they are changed by node set. Where that file is lost, as on a machine that was installed anew, the token of a node that
    has joined makes it that node again. With several addresses the next one is asked where one does not answer, or cannot do it.

    With - for TOKEN it is read from standard input: what stands on a command line is seen by every user of the machine.
    """
    as_root(app)
    joining = import_module("netregistry.joining")
    wanted, places = joining.read(_given(token)), [each for each in urls.split(",") if each]
    for each in places:
        import_module("netregistry.reach").parsed(each)
    me = None
    if wanted.role == "node":
        me, found = _node_joined(app, partial(joining.join, app.paths.lib, places, wanted), name, body_of("nodes", given, None))
    elif given or name:
        raise click.UsageError("--name and FIELD=VALUE are for nodes")
    else:
        found = joining.join(app.paths.lib, places, wanted, None)
    if as_json:
        value = {"role": found.role, "name": found.name, "addresses": list(found.addresses), "until": found.until}
        answer("registry-change", revision="", done=True, value=value, changes=[])
    else:
        who = f"{found.role} {me.name if me is not None else found.name}"
        say(f"joined {text(list(found.addresses))} as {who}, until {_time(found.until)}; it is renewed by itself")


def _node_joined(app: App, join: Callable[..., Any], name: str, about: dict[str, Any]) -> tuple[Membership, Any]:
    """Let this machine join as a node; give who it is, and what it has joined with. Raises as ``join`` does.

    One that was renamed in the registry since takes that name, unless it is to have another one: ``name``. One that does not know who it
    was becomes the node that the token is for, unless ``name`` is another one's. So does one that only has a UUID of a join that nobody has
    answered (503, or cut off): no registry knows it by that.
    """
    problem, there = import_module("netregistry.client").Problem, membership.read(app.paths)
    before = None if there is None or _unanswered(app, there) else there
    called = name or (there.name if there is not None else os.uname().nodename.partition(".")[0])
    me = Membership(there.uuid if there is not None else app.new_uuid(), called)
    try:
        return me, _joined_as(app, join, me, before, about)
    except problem as refused:
        uuid, known = str(refused.document.get("node", "")), str(refused.document.get("called", ""))
        if refused.kind == "exists":
            becomes = uuid == me.uuid and refused.document.get("field") == "name" and not name
        else:
            becomes = refused.kind == "token" and before is None and validate.is_uuid(uuid) and (not name or known in ("", name))
        if not becomes:
            raise
    me = Membership(uuid, validate.name(known, "name") if known else called)
    return me, _joined_as(app, join, me, before, about)


def _unanswered(app: App, there: Membership) -> bool:
    """Tell whether this machine has its UUID of a join that no registry has answered."""
    if import_module("netregistry.joining").begun(app.paths.lib) != there.uuid:
        return False
    try:
        found = import_module("netregistry.credentials").read(app.paths.lib, "node")
    except HostRefused:
        return True
    return found is None or found.name != there.uuid  # one that was cut off behind the answer is in


def _joined_as(app: App, join: Callable[..., Any], me: Membership, before: Membership | None, about: dict[str, Any]) -> Any:
    """Let this machine join as ``me``; give what it has joined with. One that is refused is what it was ``before``."""
    joining = import_module("netregistry.joining")

    def begin() -> None:
        if before is None:
            joining.begin(app.paths.lib, me.uuid)
        membership.write(app.paths, me)

    try:
        # kept before it is asked for: a node that is cut off then asks again under the same UUID
        found = join({"uuid": me.uuid, "name": me.name, **about}, begin)
    except import_module("netregistry.client").Problem as refused:
        if refused.undone:
            if before is None:
                membership.remove(app.paths)
            else:
                membership.write(app.paths, before)
            joining.over(app.paths.lib)
        raise
    joining.over(app.paths.lib)
    return found


def _given(text: str) -> str:
    """Give a token as it was given: for - the first line of standard input."""
    if text != "-":
        return text
    if sys.stdin.isatty():
        say("netcommon: the token, in one line:", err=True)
    return sys.stdin.buffer.readline(LONGEST).decode("ascii", "replace")


COMMANDS = {"authority": authority, "token": token, "certificate": certificate, "join": join}
