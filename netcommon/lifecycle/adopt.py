"""adopt: NICs of running instances, which Ganeti's own scripts brought up, come under management.

No guest notices, but that a routed one is told of another MAC of its gateway (netcommon.lifecycle.adopted_gateway).

Each is brought up as usual, but for the site's scripts, which have run already: whatever holds is not changed by that. Then what
Ganeti's script made for exactly this tap becomes ours, so that down removes it: its rule and route without our mark, and the tap's
place in the bridge. The port of an openvswitch one gets our mark first (netcommon.lifecycle.adopted_port).
"""

from __future__ import annotations

from netcommon.lifecycle import adopted_gateway as gateway
from netcommon.lifecycle import execute, inventory
from netcommon.lifecycle.abandoned import at_work
from netcommon.lifecycle.context import ADOPT, alive, locks, to_its_end
from netcommon.lifecycle.gc import WOULD as WOULD_GO
from netcommon.lifecycle.gc import remove
from netcommon.lifecycle.qemu_taps import Asked, Match, NotRunning, match, read_qemu
from netcommon.lifecycle.renamed_device import name_of, on_device
from netcommon.lifecycle.unguarded import UNGUARDED, opening
from netcommon.lifecycle.up import up
from netcommon.operations.base import to_json
from netcommon.operations.rule import detached
from netcommon.options.model import DEFAULTS
from netcommon.options.sources import options_of
from runtime import ganeti
from runtime.environment import nic_from_environment
from runtime.errors import HostRefused, NetcommonError, NicInvalid
from runtime.nic import Nic
from runtime.record import CHANGING
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from netcommon.host.api.host import View
    from netcommon.lifecycle.context import Call, Node
    from netcommon.operations.base import Operation

ADOPTED, WOULD, ALREADY, STOPPED, SKIPPED, FAILED = "adopted", "would adopt", "managed already", "not running", "skipped", "failed"


#: Whoever brings a NIC up takes its device up. An up of ours that was refused, or a down, has left this one so, and its guest unguarded
#: on the network is not what they wanted.
DAMAGED = "its record is damaged (netcommon doctor): what that had made for it, such as its guard, stays until its next start"
CUT_OFF = "its device is down: nobody has brought the NIC up, or somebody has taken it down; netcommon up, or the guest's next start, does"


class Adoption(NamedTuple):
    """Say what became of one NIC, of an instance as a whole (then ``nic`` is ""), or of something on ``device`` that is no instance's."""

    instance: str
    nic: str  #: its index
    uuid: str
    device: str
    action: str  #: one of ADOPTED, WOULD, ALREADY, STOPPED, SKIPPED, FAILED; of ``leftovers`` what netcommon.lifecycle.gc says
    why: str


def adopt(
    node: Node,
    make_call: Callable[[Nic], Call],
    wanted: Sequence[str] = (),
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Adoption]:
    """Adopts the NICs of the instances ``wanted``, of all that run here where none is named. What is not certain is left alone."""
    found: list[Adoption] = []
    for instance in wanted or ganeti.instances(node.paths):
        progress(instance)
        try:
            pairs = _nics(node, instance)
        except NetcommonError as error:
            found.append(Adoption(instance, "", "", "", STOPPED if isinstance(error, NotRunning) else SKIPPED, str(error)))
            continue
        for nic, matched in pairs:
            if isinstance(nic, NicInvalid):
                found.append(Adoption(instance, "", "", "", SKIPPED, str(nic)))
            else:
                found.append(_one(node, nic, matched, make_call, dry_run))
    return found


def leftovers(node: Node, call: Call, dry_run: bool = False) -> list[Adoption]:
    """Remove the rules that Ganeti's script has left of devices that are gone: the next device of the name would be led by them."""
    left = detached(node.host.view())
    known = inventory.records(node) if left and not dry_run else None
    return [Adoption("", "", "", one.device, remove(node, one, known, call) if known else WOULD_GO, one.text) for one in left]


def _nics(node: Node, instance: str) -> list[tuple[Nic | NicInvalid, Match]]:
    """The NICs of an instance that runs here, each with its tap. Raises NotRunning; HostRefused where it cannot be looked into."""
    runtime = ganeti.read_runtime(node.paths, instance)
    if runtime is None:
        raise NotRunning("it has no runtime file here")
    if runtime.problems:
        raise HostRefused("; ".join(runtime.problems))
    pid = ganeti.instance_pid(node.paths, instance)
    if not pid:
        raise NotRunning("it has no pid file")
    qemu = read_qemu(node.paths.proc, pid, instance)
    nics: list[Nic | NicInvalid] = []
    for stored in runtime.nics:
        try:
            nics.append(nic_from_environment(stored.environment(instance, "unknown")))
        except NicInvalid as error:
            nics.append(error)
    # one that cannot be read may have any tap: the others are then told by QEMU's command line alone
    asked = [Asked(nic, stored.device_id) for nic, stored in zip(nics, runtime.nics, strict=True) if isinstance(nic, Nic)]
    files = ganeti.nic_files(node.paths, instance) if len(asked) == len(nics) else {}
    found = iter(match(node.host.view(), qemu, asked, files))
    return [(nic, next(found) if isinstance(nic, Nic) else Match("", "")) for nic in nics]


def _one(node: Node, nic: Nic, matched: Match, make_call: Callable[[Nic], Call], dry_run: bool) -> Adoption:
    """One NIC, whose device is known by now or not."""
    made = Adoption(nic.instance, str(nic.index), nic.uuid, matched.tap, SKIPPED, matched.why)
    if not matched.tap:
        return made
    environment = {**nic.environment, "INTERFACE": matched.tap}
    nic = nic._replace(interface=matched.tap, environment=environment)
    options = options_of(nic, node.settings)
    if options.spoof_guard or options.node_access != DEFAULTS.node_access:
        made = made._replace(why="; ".join(filter(None, (matched.why, UNGUARDED))))
    nic = _unguarded(nic, node.settings.tag_prefix)
    try:
        view = node.host.view()
        for record in (node.store.read(nic.uuid), on_device(node, view, nic.interface)):
            if record is None or not alive(node, view, record):
                continue
            device = name_of(node, view, record)
            if record.uuid != nic.uuid or device != nic.interface:
                return made._replace(why=f"{device} is on record for NIC {record.uuid}, Ganeti's files say otherwise")
            if record.door == ADOPT and not dry_run:
                _take_over(node, nic, make_call(nic), again=True)
            return made._replace(action=ALREADY, why="")
        if any(name.startswith(nic.uuid) for name in node.store.quarantined()):
            return made._replace(why=DAMAGED)
        link = view.link(nic.interface)
        if link is not None and not link.up:
            return made._replace(why=CUT_OFF)
        if not gateway.gateways_of(node, view, nic).known:
            made = made._replace(why="; ".join(filter(None, (made.why, gateway.UNTOLD))))
        if dry_run:
            return made._replace(action=WOULD)
        call = make_call(nic)._replace(door=ADOPT)
        if at_work(node, nic.uuid):
            return made._replace(why="a hook is at work on it")
        up(node, nic, call, run_scripts=False, fresh=True)
        if not _take_over(node, nic, call, link.address if link else ""):
            return made._replace(action=ALREADY, why="a hook was faster")
    except NetcommonError as error:
        return made._replace(action=FAILED, why=str(error))
    return made._replace(action=ADOPTED)


def _unguarded(nic: Nic, prefix: str) -> Nic:
    """``nic`` as if tags of its own switched the spoof guard off, let it send in both families, and opened the node.

    Its next up, which has the tags, guards it.
    """
    added = opening(prefix, nic.uuid)
    tags = " ".join(filter(None, (nic.environment.get("TAGS", ""), *added)))
    return nic._replace(tags=(*nic.tags, *added), environment={**nic.environment, "TAGS": tags})


def _take_over(node: Node, nic: Nic, call: Call, mac: str = "", again: bool = False) -> bool:
    """Makes what Ganeti's script did for this tap ours, on the record first; False where the record is not adopt's own.

    ``mac``: what the tap had before all of it, if that may be another by now. ``again``: it was adopted earlier, and its tap keeps the MAC
    that it has. Idempotent. Raises HostRefused, TryAgain or NicInvalid.
    """
    gateways = gateway.gateways_of(node, node.host.view(), nic)
    seen = node.store.read(nic.uuid)
    if seen is None:
        return False
    with locks(node, call) as held:
        held.devices({seen.device})
        held.uuids({seen.uuid})
        record = node.store.read(nic.uuid)
        if record is None or record.device != seen.device or record.door != ADOPT or record.state == CHANGING:
            return False
        operations, unknown = execute.decode(record)
        held.keys(execute.locks_of(operations))
        view = node.host.view()
        link = view.link(record.device)
        mac = mac or (link.address if link else "")
        stays = [operation.of_neighbours() and (again or not gateways.known) for operation in operations]
        made = [old if kept else old.taken_over(view) for old, kept in zip(operations, stays, strict=True)]
        pairs = [(old, new) for old, new, kept in zip(operations, made, stays, strict=True) if not kept]
        stored = (*unknown, *map(to_json, made))
        if stored != record.operations:
            node.store.write(record._replace(operations=stored))
        rest = [(new, new) for _old, new in pairs]
        to_its_end(lambda: _ask(node, view, pairs, call), lambda: _ask(node, node.host.view(), rest, call), call.log)
        gateway.tell(node, node.host.view(), record.device, gateways, mac, call)
    return True


def _ask(node: Node, view: View, pairs: Sequence[tuple[Operation, Operation]], call: Call) -> None:
    """Ask the host for what makes Ganeti's ours: of each operation as it was, and as it is now. Raises HostRefused or TryAgain."""
    requests = [(new, request) for old, new in pairs for request in new.taking_over(view, old)]
    answers = node.host.execute([request for _new, request in requests], stop=True) if requests else []
    for (new, request), answer in zip(requests, answers, strict=True):
        call.log.info(f"taken over from Ganeti's script: {new.describe()}")
        if not answer.ok and answer.errno not in request.gone:
            raise execute.refusal(new, answer)
