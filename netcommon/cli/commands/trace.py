"""netcommon trace: what happens to a frame."""

from __future__ import annotations

import locale
import sys

import click

from netcommon.cli.app import App
from netcommon.cli.commands.tree import draws
from netcommon.cli.names import EXPECTED_UP, complete, single
from netcommon.cli.output import coloured, emit, json_option
from netcommon.lifecycle.renamed_device import follow
from netcommon.views.topology.text import ASCII, UNICODE
from netcommon.views.trace.frame import FROM_GUEST, PLAIN_PORT, PROTOCOLS, TO_GUEST, Wanted
from netcommon.views.trace.request import document, frame, subject, trace
from netcommon.views.trace.text import text
from runtime.errors import NicInvalid

#: A frame is as long as this at least (its addresses and type), and no longer (bytes; 64 KiB and a header).
SHORTEST, LONGEST = 14, 65550


class _Number(click.ParamType[int]):
    """An integer, decimal or with 0x, within a range."""

    name = "number"

    def __init__(self, last: int) -> None:
        self.last = last

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            found = value if isinstance(value, int) else int(str(value), 0)
        except ValueError:
            found = -1
        if not 0 <= found <= self.last:
            self.fail(f"{value!r} is no number from 0 to {self.last}", param, ctx)
        return found


@click.command("trace")
@click.argument("name", metavar="NIC", shell_complete=complete)
@click.option("--from", "sender", type=click.Choice(["guest"]), help="The guest sends the frame (this is the default).")
@click.option("--to", "receiver", type=click.Choice(["guest"]), help="It comes for the guest, by the uplink of the NIC's bridge or table.")
@click.option("--src", "source", default="", metavar="IP", help="Its IP source, in ARP the sender. Else the NIC's address.")
@click.option("--dst", "target", default="", metavar="IP", help="Its IP destination, in ARP the one that is asked for.")
@click.option("--src-mac", default="", metavar="MAC", help="Its Ethernet source. Else the NIC's MAC.")
@click.option("--dst-mac", default="", metavar="MAC", help="Its Ethernet destination. Else that of --dst, where it is known, or all.")
@click.option("--ethertype", type=_Number(0xFFFF), help="Its EtherType, as 0x88cc.")
@click.option("--vlan", type=_Number(4095), help="The VLAN that it is tagged with.")
@click.option("--arp", is_flag=True, help="It is an ARP request.")
@click.option("--protocol", type=click.Choice(sorted(PROTOCOLS)), default="udp", help="What is in the IP packet; udp is the default.")
@click.option("--sport", type=_Number(0xFFFF), help="Its source port.")
@click.option("--dport", type=_Number(0xFFFF), help="Its destination port.")
@click.option("--icmp-type", type=_Number(0xFF), help="The type of its ICMP message; 134: a router advertisement.")
@click.option("--hex", "given", default="", metavar="BYTES", help="The whole frame instead, as tcpdump -xx shows it.")
@json_option
@click.pass_obj
def command(
    app: App,
    name: str,
    sender: str | None,
    receiver: str | None,
    source: str,
    target: str,
    src_mac: str,
    dst_mac: str,
    ethertype: int | None,
    vlan: int | None,
    arp: bool,
    protocol: str,
    sport: int | None,
    dport: int | None,
    icmp_type: int | None,
    given: str,
    as_json: bool,
) -> None:
    """Tell what happens to a frame of a NIC: what it meets on its way through the node, whose that is, and where it ends.

    No frame is sent. The rules, tables and ports are those that the host has now; what cannot be told from them is said. Without
    options it is a UDP packet of the guest's. Changes nothing; needs root where the packet filter may be read by root alone.
    """
    if sender and receiver:
        raise click.UsageError("--from and --to: a frame has one way")
    way = TO_GUEST if receiver else FROM_GUEST
    node = app.node(strict=False, readonly=True)
    records, problems = node.store.all()
    for problem in problems:
        app.log.warning(problem)
    view, uplinks = node.host.snapshot(), dict(node.settings.uplinks)
    found = single(records, name, view)
    if found is None:
        node.store.refuse_newer(name)
        raise NicInvalid("NIC", name, EXPECTED_UP)
    found = follow(node, view, found)
    of = subject(found, records)
    wanted = Wanted(
        src_mac,
        dst_mac,
        source,
        target,
        -1 if ethertype is None else ethertype,
        -1 if vlan is None else vlan,
        arp,
        protocol,
        PLAIN_PORT if sport is None else sport,
        PLAIN_PORT if dport is None else dport,
        -1 if icmp_type is None else icmp_type,
    )
    path = trace(view, of, way, _bytes(given) if given else frame(view, of, way, wanted, uplinks), uplinks)
    if as_json:
        emit(document(path))
        return
    on = coloured(app.environ)
    style = (UNICODE if draws(sys.stdout.encoding or "ascii", locale.getencoding()) else ASCII)._replace(colour=on)
    click.echo(text(path, style), color=on)


def _bytes(given: str) -> bytes:
    """Raises NicInvalid for what is no frame."""
    try:
        data = bytes.fromhex(given.replace(":", " "))
    except ValueError:
        data = b""
    if not SHORTEST <= len(data) <= LONGEST:
        raise NicInvalid("--hex", given[:80], f"{SHORTEST} to {LONGEST} bytes of a frame in hexadecimal")
    return data


COMMANDS = {"trace": command}
