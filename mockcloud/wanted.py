"""Say what is wanted of a NIC: by the registry, by what its guest was started with, and by the node's settings as they are written.

Which of them counts netcommon.options says.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from mockcloud.stored import Interface
from mockcloud.variables import variables
from netcommon.options.addresses import Addresses, addresses_of
from netcommon.options.model import Options
from netcommon.options.sources import options_of
from netcommon.options.tags import KINDS, PROFILES
from netcommon.plan.planner import plan
from netcommon.settings import parse
from netcommon.settings.model import Settings
from netregistry.model.codec import read
from runtime.environment import nic_from_environment
from runtime.errors import NetcommonError
from runtime.nic import REGISTRY, Changed
from runtime.registry_wanted import wanted_of
from runtime.vlan import Vlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mockcloud.node import MockNode

OF_ADDRESSES = frozenset({"addresses", "prefixes", "eui64"})  #: options that give a guest addresses besides its IP
#: Options that say what a guest may send.
OF_GUARD = OF_ADDRESSES | {"spoof_guard", *(name for name in Options._fields if name.startswith("allow_"))}


class Wanted(NamedTuple):
    """Hold what is wanted of a NIC that runs. ``unsure``: options of which a value may be in force, or may not be yet, or no more.
    ``refused``: why a node cannot do it; then what was wanted before is in force.
    """

    options: Options
    addresses: Addresses
    unsure: frozenset[str]
    vlan: Vlan = Vlan()
    refused: str = ""


def settings_of(node: MockNode) -> Settings:
    """Give the settings of a node as they are written; where they cannot be used those that its agent has."""
    with suppress(NetcommonError, FileNotFoundError):
        return parse.read(os.open(node.paths.config, os.O_RDONLY | os.O_CLOEXEC), node.paths.config).settings
    return node.state.settings if os.path.exists(node.paths.config) else Settings()


def wanted_by(item: Mapping[str, Any], interface: Mapping[str, Any], settings: Settings) -> Wanted:
    """Give what is wanted of a NIC. ``item``: what the registry wants of it; ``interface``: as its guest was started."""
    said, had = wanted_of("", item["nic"]).options, read(Interface, interface)
    made = nic_from_environment(variables(had.nic, had.network, had.tap))
    made = made._replace(wanted=tuple(Changed(each.name, each.value, REGISTRY) for each in said))
    unsure = _pending(item["nic"], interface["nic"], settings) - {each.name for each in said}
    unsure |= {each.name for each in said if each.until}
    try:
        options = options_of(made, settings)
        plan(made, settings)
        return Wanted(options, addresses_of(made, options), unsure, made.vlan)
    except NetcommonError as error:
        return Wanted(Options(), Addresses(), unsure, refused=str(error))


def _pending(now: Mapping[str, Any], then: Mapping[str, Any], settings: Settings) -> frozenset[str]:
    """Give the options of which tags speak that a NIC has otherwise than its guest was started with, or by its position, which shifts."""
    start = f"{settings.tag_prefix}:"
    by_position = {tag for tag in (*now["tags"], *then["tags"]) if tag.removeprefix(start).partition(":")[0].isdecimal()}
    words = {word for tag in {*now["tags"]} ^ {*then["tags"]} | by_position if tag.startswith(start) for word in tag.split(":")}
    return frozenset(words & KINDS.keys()) | ({"firewall"} if words & PROFILES else frozenset[str]())
