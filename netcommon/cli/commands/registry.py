"""netcommon registry: makes and serves a cluster's registry, and asks it.

The registry is a package of its own that nothing of netcommon imports; this names it only.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from netcommon import __version__
from netcommon.cli import signals
from netcommon.cli.app import App
from netcommon.cli.commands import registry_certificates, registry_compact, registry_files, registry_objects, registry_underlay
from netcommon.cli.output import answer, fields, json_option, say
from netcommon.cli.registry_client import (
    as_root,
    authority_keys,
    client,
    file_of,
    in_etcd,
    node_of,
    served,
    show_list,
    signing,
    socket_of,
    store_of,
    text,
    uuid_of,
    warn_of_key,
    whole,
)
from netcommon.settings.model import Settings
from netcommon.views.live.events import moment
from runtime.errors import HostRefused, escaped
from runtime.moment import local_time

#: Without it, the service alone cannot run.
LIBRARY = "aiohttp"
OLDEST = "3.8"  #: of it, Debian 12's
GET_IT = "apt install python3-aiohttp, of Debian 12 or later, or pip install netcommon[registry]"
MOST_FOUND = 1000
PAGES = 8080  #: the port at which pages are reached by ssh
FOUND = {"networks": "network", "nics": "nic", "nodes": "node", "macs": "MAC", "addresses": "address"}  #: kinds of what is found


@click.group("registry")
def registry() -> None:
    """The registry of a cluster: networks, NICs, MACs and addresses as they are wanted, and which node has them.

    NICs are named by UUID, INSTANCE/INDEX, MAC or address, networks and nodes by name or UUID. FIELD=VALUE sets a field; several values
    have commas between them, and an empty one takes away what was said. The service runs on this machine (netcommon registry serve), or
    elsewhere (netcommon registry join).
    """


for _commands in (registry_objects, registry_files, registry_certificates, registry_underlay):
    for _command in _commands.COMMANDS.values():
        registry.add_command(_command)
registry.add_command(registry_compact.compact)


@registry.command("init")
@json_option
@click.pass_obj
def init(app: App, as_json: bool) -> None:
    """Make a registry that holds nothing, and its authority.

    It is a file in /var/lib/netregistry, or in the etcd that [registry] store names. The authority lets other machines in; its key is in
    the folder /var/lib/netregistry/authority. A registry that is there stays as it is; where one is in the file, none is made in an etcd.
    """
    as_root(app)
    path, without = store_of(app), ""
    if in_etcd(app) and os.path.lexists(file_of(app)):
        remedy = f"netcommon registry move --to the same etcd brings it there; to begin with nothing, move {escaped(file_of(app))} away"
        raise HostRefused(f"a registry is in {escaped(file_of(app))}", remedy)
    epoch = import_module("netregistry.stores.opening").begin(path)
    try:
        registry_certificates.module_of("netregistry.authority.key_files").begin(path, authority_keys(app))
    except HostRefused as error:
        without = str(error)
    if as_json:
        answer("registry-file", path=path, epoch=epoch, kept="")
    else:
        say(f"made {path}, epoch {epoch}\nnext: systemctl enable --now netcommon-registry")
    if without:
        say(f"netcommon: no authority is made, for machines elsewhere: {without}; then netcommon registry authority rotate", err=True)


@registry.command("serve")
@click.option("--store", default="", metavar="ADDRESS", help="The etcd that keeps it; [registry] store by default.")
@click.pass_obj
def serve(app: App, store: str) -> None:
    """Serve the registry, until SIGTERM.

    It listens on /run/netregistry/socket, for root alone, and by TLS where [registry] listen says. It stays in the foreground:
    netcommon-registry.service starts it.
    """
    as_root(app)
    settings = app.settings()
    try:
        version = str(import_module(LIBRARY).__version__)
    except ModuleNotFoundError as error:
        if error.name != LIBRARY:
            raise
        raise HostRefused(f"the registry's service needs {LIBRARY} {OLDEST} or later", GET_IT) from None
    if _numbers(version) < _numbers(OLDEST):
        raise HostRefused(f"the registry's service needs {LIBRARY} {OLDEST} or later, and {version} is here", GET_IT)
    module, pages = import_module("netregistry.service.serve"), import_module("netregistry.pages.front")
    folder = os.path.dirname(socket_of(app))
    if not os.path.isdir(folder):
        os.mkdir(folder, 0o700)
    addresses = tuple((each.rpartition(":")[0].strip("[]"), int(each.rpartition(":")[2])) for each in settings.registry_listen)
    others = module.Listening(addresses, settings.registry_names or _names(addresses), authority_keys(app))
    publisher = _publisher(settings, app.clock.now) if settings.registry_zone_servers else None
    module.run(store or store_of(app), socket_of(app), __version__, app.environ, app.log, others, pages.Pages, publisher)


def _publisher(settings: Settings, now: Callable[[], float]) -> Any:
    """Give what keeps the zone of the underlay's names at its servers."""
    zone = import_module("netregistry.zone.server")
    return zone.publisher(settings.registry_zone_servers, settings.registry_zone_key_file, settings.registry_zone_timeout, now)


def _numbers(version: str) -> tuple[int, ...]:
    """Give the first two numbers of a version."""
    return tuple(int(each) for each in re.findall("[0-9]+", version)[:2])


def _names(addresses: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Give the names under which this machine is known, where the settings say none: its own, and the addresses that are listened on."""
    own = dict.fromkeys((socket.getfqdn(), socket.gethostname()), None)
    return (*(each for each in own if each.isascii()), *(address for address, _port in addresses if address not in ("0.0.0.0", "::")))  # noqa: S104


@registry.command("pages")
@json_option
@click.pass_obj
def pages(app: App, as_json: bool) -> None:
    """Say how a browser reaches the pages.

    By ssh, or by TLS with a certificate of a reader or an operator.

    They show networks, NICs, nodes, conflicts and the history as they are, and change nothing.
    """
    settings, folder = app.settings(strict=False), os.path.dirname(socket_of(app))
    ssh, local = f"ssh -N -L 127.0.0.1:{PAGES}:{folder}/pages root@{socket.getfqdn()}", f"http://localhost:{PAGES}/"
    where = [(each.rpartition(":")[0].strip("[]"), int(each.rpartition(":")[2])) for each in settings.registry_listen]
    addresses = [
        f"https://{name}:{port}/"
        for name in settings.registry_names or _names(tuple(where))
        for port in sorted({port for _, port in where})
    ]
    read = import_module("netregistry.credentials").read
    known = [found for role in ("reader", "operator") if (found := read(app.paths.lib, role)) is not None]
    addresses = addresses or [f"{each.rstrip('/')}/" for found in known[:1] for each in settings.registry_addresses or found.addresses]
    identity = known[0].folder if known else f"{app.paths.lib}/certificates/reader"
    if as_json:
        answer("registry-pages", command=ssh, url=local, addresses=addresses, identity=identity if addresses else "")
        return
    lines = ["with root's ssh, from any machine:", f"  {ssh}", f"  {local}"]
    if addresses:
        lines += ["by TLS, with the certificate of a reader or an operator in the browser:", *(f"  {each}" for each in addresses)]
        lines += [f"  openssl pkcs12 -export -in {identity}/identity.pem -out reader.p12  # and {identity}/authorities.pem, whom to trust"]
    say("\n".join(lines))


@registry.command("status")
@json_option
@click.pass_obj
def status(app: App, as_json: bool) -> None:
    """Show how the registry's service is."""
    with client(app) as asked:
        said = asked.get("status").body
        signs = signing(whole(asked, "authorities")[0]) if served(app) else ""
    warn_of_key(app, signs)
    if as_json:
        answer("registry-status", **{("program" if name == "version" else name): value for name, value in said.items()})
        return
    said["leader"] = "yes" if said["leader"] else "no"
    say(fields((name, str(value) if isinstance(value, int) else text(value)) for name, value in said.items()))


@registry.command("find")
@click.argument("part", metavar="TEXT")
@json_option
@click.pass_obj
def find(app: App, part: str, as_json: bool) -> None:
    """Find by any part of a name, MAC, address or UUID.

    Networks, NICs and nodes are looked at, and MACs and addresses that are reserved or in quarantine. Addresses and MACs may be written in
    any way: 2001:0DB8::0:1, 00-00-5E-00-00-01. A network is found by each address that it gives to nobody, too, and by
    one that nothing has, or a prefix, if that is in its subnet; networks and nodes are found by their cluster.
    """
    with client(app) as asked:
        page = asked.get("find", text=part, limit=MOST_FOUND).body

    def row(item: Any) -> tuple[Any, ...]:
        return FOUND[item["kind"]], item["label"], item["text"], item["uuid"]

    show_list(page["items"], page["revision"], ("KIND", "NAME", "FOUND", "UUID"), row, as_json, "nothing has that")
    if len(page["items"]) == MOST_FOUND:
        say(f"netcommon: these are the first {MOST_FOUND}: give a longer part", err=True)


@registry.command("conflicts")
@json_option
@click.pass_obj
def conflicts(app: App, as_json: bool) -> None:
    """List MACs and addresses that several NICs want or have."""
    with client(app) as asked:
        items, revision = whole(asked, "conflicts")

    def row(item: Any) -> tuple[Any, ...]:
        one = item["conflict"]
        _kind, scope, what = one["claim"].split("/", 2)
        more = f" and {one['more']} more" if one.get("more") else ""
        return what, scope, one["holder"], text(one["contenders"]), text(one.get("reported", ())) + more

    show_list(items, revision, ("WHAT", "SCOPE", "HELD BY", "WANTED BY", "REPORTED OF"), row, as_json, "no conflicts")


@registry.command("history")
@click.argument("name", default="", metavar="[NAME]")
@click.option("--since", default="", metavar="TIME", help="Only what is not older: 90s, 10m, 2h, 1d, or a local time as 2026-11-22 04:41.")
@click.option("--action", default="", metavar="ACTION", help="Only requests of this action, such as nic.set.")
@click.option("--by", default="", metavar="WHO", help="Only requests of this operator, cluster or node.")
@json_option
@click.pass_obj
def history(app: App, name: str, since: str, action: str, by: str, as_json: bool) -> None:
    """Show who changed what, when.

    With the name of a network, NIC or node: what concerns that. What is deleted is named by its UUID.
    """
    query: dict[str, Any] = {"since": moment(since, app.clock.wall())} if since else {}
    query |= {key: value for key, value in (("action", action), ("by", by)) if value}
    with client(app) as asked:
        if name:
            query["target"] = uuid_of(asked, name)
        items, revision = whole(asked, "history", **query)
    items.sort(key=lambda item: int(item["entry"]["number"]))

    def row(item: Any) -> tuple[Any, ...]:
        entry = item["entry"]
        when = local_time(entry["time"])
        who = f"{entry['who']['role']} {entry['who']['name']}".strip()
        return entry["number"], when, who, entry["action"], entry["target"], len(entry["changes"])

    show_list(items, revision, ("NUMBER", "TIME", "WHO", "ACTION", "OF", "CHANGES"), row, as_json, "nothing was changed")


@registry.command("watch")
@click.argument("name", metavar="NODE")
@click.option("--from", "start", default="", metavar="REVISION", help="Go on behind this EPOCH:REVISION of a line that says ready.")
@click.pass_obj
def watch(app: App, name: str, start: str) -> None:
    """Print what the registry tells a node, as it changes.

    One JSON document a line, until Ctrl-C.
    """
    with client(app) as asked:
        uuid = node_of(asked, name)["node"]["uuid"]
        signals.take_no_ctrl_c()
        try:
            for line in asked.watch(uuid, start):
                click.echo(json.dumps(line))
        except KeyboardInterrupt:
            pass


COMMANDS = {"registry": registry}
