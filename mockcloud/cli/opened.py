"""Open a cloud for one command, and find its nodes by name."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from mockcloud import state, sysinfo
from mockcloud.cloud import MockCloud, node_uuid
from runtime.errors import HostRefused, NicInvalid, escaped
from runtime.validate import is_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER = "/var/lib/mockcloud"
VARIABLE = "MOCKCLOUD"

#: For every subcommand that works on a cloud.
cloud_option = click.option(
    "--cloud", "folder", metavar="FOLDER", default=FOLDER, envvar=VARIABLE, show_default=True, help="The cloud's folder."
)


@contextmanager
def opened(folder: str, new: bool = False, seed: int = 1, **made: Any) -> Iterator[MockCloud]:
    """Open the cloud of a folder, and close it. ``new``: one that is not there is made; ``made``: of what sort new nodes are.

    Raises HostRefused where there is none; TryAgain where another process is at work on it.
    """
    if not new and not state.there(folder):
        raise HostRefused(f"there is no mock cloud in {escaped(folder)}", "mockcloud create makes one; --cloud names another folder")
    cloud = MockCloud(folder, seed, **made)
    try:
        yield cloud
    finally:
        cloud.close()


def uuids(cloud: MockCloud, names: Sequence[str]) -> list[str]:
    """Give the UUIDs of nodes, named by UUID or hostname, unfinished and refused ones among them. Raises NicInvalid."""
    tree = sysinfo.look(cloud.root)
    known = {*(each.uuid for each in tree.nodes), *tree.unfinished, *tree.refused}
    found = dict.fromkeys(_uuid(name) for name in names)
    for name, uuid in zip(names, map(_uuid, names), strict=True):
        if uuid not in known:
            raise NicInvalid("NODE", name, "the UUID or hostname of a node: mockcloud list says which there are")
    return list(found)


def _uuid(name: str) -> str:
    """Give the UUID that a name stands for, "" for what is neither a UUID nor a hostname."""
    if is_uuid(name.lower()):
        return name.lower()
    number = re.fullmatch("mock([1-9][0-9]{0,6})", name, re.ASCII)
    return node_uuid(int(number[1])) if number else ""
