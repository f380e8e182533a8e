"""Say by which requests a registry comes to have what a configuration says: pure.

Nothing is asked for that is so already. The order is such that none is refused for what another one will put right: networks before the
NICs in them, a name before who gets it, and what is gone last of all.

An address that the configuration has for a guest is somebody's here from then on: its NIC's, else the network has it ``barred``, until the
NIC is there. What is done all together has both at once; what is not bars first, and gives free last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netregistry.importer import pool
from netregistry.model.network import Network
from netregistry.request import ANY
from netregistry.rules import masters

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from netregistry.importer.configuration import Configuration

    Fields = dict[str, Any]

LARGEST = 100  #: things that one batch changes at most
MOST_PARTS = 49  #: of one batch, beside the fence
BARRED = "barred"
GATEWAYS = {"gateway": "subnet", "gateway6": "subnet6"}  #: each with what it must be in


class Known(NamedTuple):
    """What the registry has of this cluster's master: UUID -> fields, as the registry answers them.

    ``imported``: how far its import is (netregistry.model.importing.Import); empty where nothing was.
    ``apart``: names of the nodes that have NICs of the cluster, and are of another one, or none: they are told nothing but of these.
    """

    networks: dict[str, Fields]
    nics: dict[str, Fields]
    imported: Fields
    apart: tuple[str, ...] = ()


class Step(NamedTuple):
    """One request. ``size``: how many things it changes at most; ``label``: what it is about, for people."""

    action: str
    uuid: str
    body: Fields | None
    size: int
    label: str = ""

    @property
    def part(self) -> Fields:
        """Give it as a part of a batch."""
        return {"action": self.action, "target": "" if self.action.endswith(".add") else self.uuid, "body": self.body, "match": ANY}

    @property
    def kind(self) -> str:
        return self.action.partition(".")[0]

    @property
    def only_bars(self) -> bool:
        """Tell whether it is about what is barred alone: nothing that anybody has changed."""
        return self.body is not None and self.body.keys() == {BARRED}


def absent(wanted: Configuration, known: Known) -> set[str]:
    """Give the UUIDs of what is known, and that the configuration does not have."""
    return {uuid for uuid in known.networks if uuid not in wanted.networks and uuid not in wanted.unread} | {
        uuid for uuid in known.nics if uuid not in wanted.nics and uuid not in wanted.unread
    }


def steps(wanted: Configuration, known: Known, gone: Collection[str], together: bool) -> list[Step]:
    """Give the requests. ``gone``: of what is absent that which is to be deleted; ``together``: all are done at once, or none."""
    return [
        *_names(wanted, known),
        *_networks(wanted, known, {**known.nics, **wanted.nics} if together else known.nics),
        *(Step("nic.delete", uuid, None, _size(nic), _nic(nic)) for uuid, nic in known.nics.items() if uuid in gone),
        *_nics(wanted, known),
        *(Step("network.delete", uuid, None, 1, _network(network)) for uuid, network in known.networks.items() if uuid in gone),
    ]


def settled(wanted: Configuration, known: Known) -> list[Step]:
    """Give the requests by which no more is barred than has to be, when all else was done or refused."""
    return [
        Step("network.set", uuid, {BARRED: said}, 1, _network(there))
        for uuid, there in known.networks.items()
        if (uuid in wanted.networks or uuid in wanted.unread)
        and (said := _barred(wanted, uuid, there, known.nics)) != there.get(BARRED, [])
    ]


def parts(step: Step) -> list[Step]:
    """Give what of a request is asked for by itself where the whole is refused: what an operator says of a network stops no tag of it.

    A network that is not there is made by its name alone, so that its NICs can be in it; the rest is asked for when it is.
    """
    body = step.body or {}
    if step.action == "network.add":
        bodies = [{name: body[name] for name in ("uuid", "name")}]
    elif step.action == "network.set":
        together: list[tuple[str, ...]] = [("subnet", "gateway"), ("subnet6", "gateway6")]
        together += [(name,) for name in body if not any(name in each for each in together)]
        bodies = [{name: body[name] for name in names if name in body} for names in together]
    else:
        return []
    return [step._replace(body=each) for each in bodies if each and each != body]


def left_out(wanted: Configuration, known: Known) -> dict[str, str]:
    """Give the networks that have a gateway in Ganeti which is in no subnet of theirs, and why it is not in the registry."""
    found = {}
    for uuid, fields in wanted.networks.items():
        fitting = _fitting(fields, known.networks.get(uuid))
        if names := [name for name in GATEWAYS if fields[name] != fitting[name]]:
            said = " and ".join(f"{name} {fields[name]} is in no {GATEWAYS[name]} of it" for name in names)
            found[uuid] = f"{_network(fields)}: {said}, and left out"
    return found


def apply(known: Known, step: Step, body: Fields) -> None:
    """Take in that a request was done. ``body``: the object, as the registry has answered it."""
    kept = known.networks if step.kind == "network" else known.nics
    if step.action.endswith(".delete"):
        kept.pop(step.uuid, None)
    else:
        kept[step.uuid] = body


def batches(todo: Iterable[Step]) -> Iterator[list[Step]]:
    """Give steps in their order, as many together as one request may have."""
    batch: list[Step] = []
    for step in todo:
        if batch and (len(batch) == MOST_PARTS or sum(each.size for each in batch) + step.size > LARGEST):
            yield batch
            batch = []
        batch.append(step)
    if batch:
        yield batch


def _names(wanted: Configuration, known: Known) -> Iterator[Step]:
    """Let a network that has the name of another one be called by its UUID, until it has its own or is gone."""
    meant = {fields["name"]: uuid for uuid, fields in wanted.networks.items()}
    for uuid, fields in known.networks.items():
        if meant.get(fields["name"], uuid) != uuid:
            yield Step("network.set", uuid, {"name": uuid}, 1, _network(fields))


def _networks(wanted: Configuration, known: Known, nics: Mapping[str, Fields]) -> Iterator[Step]:
    """Give the requests about networks. ``nics``: those of which each holds its address by then."""
    for uuid, said in wanted.networks.items():
        there = known.networks.get(uuid)
        fields = _fitting(said, there)
        if there is None:
            fields[BARRED] = _barred(wanted, uuid, fields, nics)
            yield Step("network.add", uuid, {"uuid": uuid, **_said(fields)}, 1, _network(fields))
            continue
        given = there.get("imported", [])
        # a gateway that Ganeti has not, and has never had, is the operator's
        decided = {name: value for name, value in fields.items() if value or name not in masters.ONCE_GANETI or name in given}
        decided[BARRED] = _barred(wanted, uuid, {**there, **decided}, nics)
        if body := {name: value for name, value in decided.items() if value != there.get(name, [] if name == BARRED else None)}:
            yield Step("network.set", uuid, body, 1, _network(fields))
    for uuid, there in known.networks.items():
        if uuid in wanted.unread and (barred := _barred(wanted, uuid, there, nics)) != there.get(BARRED, []):
            yield Step("network.set", uuid, {BARRED: barred}, 1, _network(there))


def _barred(wanted: Configuration, uuid: str, fields: Fields, nics: Mapping[str, Fields]) -> list[dict[str, str]]:
    """Give what is barred of a network that is to be so. ``nics``: those that hold their addresses."""
    lacking = [
        address
        for nic, address in wanted.guests.get(uuid, {}).items()
        if (there := nics.get(nic)) is None or (there.get("network"), there.get("ip")) != (uuid, address)
    ]
    return pool.barred(wanted.pools.get(uuid), fields, lacking)


def _fitting(fields: Fields, there: Fields | None) -> Fields:
    """Leave out gateways that are in no subnet: Ganeti takes, and keeps, an IPv6 one without a subnet. That may be the operator's."""
    given = () if there is None else there.get("imported", [])
    subnets = [fields[name] or (there.get(name, "") if there is not None and name not in given else "") for name in GATEWAYS.values()]
    network = Network("", "", subnet=subnets[0], subnet6=subnets[1])
    return {**fields, **{name: "" for name in GATEWAYS if fields[name] and not network.holds(fields[name])}}


def _nics(wanted: Configuration, known: Known) -> Iterator[Step]:
    for uuid, fields in wanted.nics.items():
        there = known.nics.get(uuid)
        if there is None:
            yield Step("nic.add", uuid, {"uuid": uuid, "found": True, **_said(fields)}, 2 + bool(fields["ip"]), _nic(fields))
        elif body := {name: value for name, value in fields.items() if value != there.get(name)}:
            yield Step("nic.set", uuid, body, _size(there) + _size(fields), _nic(fields))


def _network(fields: Fields) -> str:
    return f"network {fields['name']}"


def _nic(fields: Fields) -> str:
    return f"NIC {fields.get('instance', '')}/{fields.get('index', '')}"


def _said(fields: Fields) -> Fields:
    return {name: value for name, value in fields.items() if value not in ("", [])}


def _size(nic: Mapping[str, Any]) -> int:
    """Count the NIC and what it claims."""
    return 2 + bool(nic.get("ip")) + len(nic.get("addresses", ()))
