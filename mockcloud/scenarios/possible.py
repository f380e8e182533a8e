"""Find in a scenario what the fresh cloud of its run would refuse: networks, settings, and what its tasks name and is not there."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from mockcloud.instances.side import GIVEN
from mockcloud.instances.tasks import NAME
from mockcloud.networks import ADMINS, network_uuid
from mockcloud.settings_file import loaded
from mockcloud.sysinfo import hostname_of, node_uuid
from netregistry.model.codec import Invalid, read
from netregistry.model.network import Network, checked
from runtime.errors import SettingsInvalid, escaped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mockcloud.scenarios.lines import Path

PATTERN = frozenset("*?[")  #: what makes a name a pattern (fnmatch)
FILE = "config.toml"


def of_network(name: str, fields: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Say what is wrong with a network, each with its place in that."""
    made = {"uuid": network_uuid(name), "name": name}
    wrong = filter(None, (_wrong({**made, **each}) for each in ({}, *({field: value} for field, value in fields.items()))))
    each_field = {error.field: error for error in wrong}
    for error in each_field.values() or filter(None, [_wrong({**made, **fields}, True)]):
        yield (error.field,), f"{error.field} = {escaped(error.value)}: expected {error.expected}"
    if name == ADMINS["name"]:
        for field in sorted(fields.keys() - each_field.keys()):
            if fields[field] != ADMINS.get(field, ""):
                expected = f"{ADMINS.get(field) or 'nothing'}: it is the network of the nodes' own NICs"
                yield (field,), f"{field} = {escaped(fields[field])}: expected {expected}"


def _wrong(fields: Mapping[str, str], whole: bool = False) -> Invalid | None:
    """Tell what is wrong with fields of a network, or with the ``whole`` of it: fields may not fit each other."""
    try:
        made = read(Network, fields)
        if whole:
            checked(made)
    except Invalid as error:
        return error
    return None


def of_settings(text: str) -> Iterator[str]:
    """Say what is wrong with the nodes' settings, each mistake with its line in them."""
    try:
        loaded(FILE, text.encode("utf-8"))
    except SettingsInvalid as error:
        for each in str(error).split("\n"):
            line, _, says = each.removeprefix(f"{FILE}:").partition(": ")
            yield f"settings, line {line}: {says}" if line.isdecimal() else f"settings: {each}"


def of_task(task: str, given: Mapping[str, Any], networks: Collection[str], nodes: int) -> Iterator[tuple[Path, str]]:
    """Say what a task names that cannot be. ``networks``: names of those of the file; ``nodes``: how many there are."""
    known = {each for name in networks for each in (name, network_uuid(name))} | {ADMINS["name"], ADMINS["uuid"]}
    nics = [(("nics", number), each) for number, each in enumerate(given.get("nics", ()))]
    for place, fields in [*nics, (("fields",), given.get("fields", {}))]:
        for field, value in fields.items():
            if field not in GIVEN:
                yield (*place, field), f"unknown field {escaped(field)} of a NIC; known: {', '.join(sorted(GIVEN))}"
            elif field == "network" and value and value not in known:
                yield (*place, field), f"network = {escaped(value)}: expected a network of this file: [networks.NAME]"
    pattern = given.get("node", "*")
    if not any(fnmatchcase(hostname_of(number), pattern) or node_uuid(number) == pattern for number in range(1, nodes + 1)):
        there = f"one of {hostname_of(1)} to {hostname_of(nodes)}, or a pattern of some" if nodes > 1 else hostname_of(1)
        yield ("node",), f"node = {escaped(pattern)}: expected {there}"
    name = given.get("name", "*")
    if task == "create" and not set(name) & PATTERN and (not NAME.fullmatch(name) or ".." in name):
        expected = "1 to 63 of a-z, 0-9, '.' and '-', with a letter or digit at both ends"
        yield ("name",), f"name = {escaped(name)}: expected {expected}"
