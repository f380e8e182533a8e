"""Let a site's extensions import our modules by the names that they had in version 0.1, until version 0.3.

Imported, and in force, only where a node has extensions (netcommon.extension_loader).
"""

from __future__ import annotations

import sys
from _frozen_importlib import ModuleSpec

from runtime.modules import load
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from runtime.nic import Nic

#: Modules of 0.1 that an extension had a use for, and what they are called now.
MOVED = {
    "netcommon.addresses": "netcommon.options.addresses",
    "netcommon.custom": "netcommon.scripts.site",
    "netcommon.effects.announce": "netcommon.features.announce",
    "netcommon.effects.detached": "netcommon.effects.background",
    "netcommon.extended": "netcommon.features.extension_check",
    "netcommon.extending": "netcommon.extension_loader",
    "netcommon.features.steady": "netcommon.features.tap_mac",
    "netcommon.host.attributes": "netcommon.host.rtnetlink.attributes",
    "netcommon.host.base": "netcommon.host.api.host",
    "netcommon.host.facts": "netcommon.host.api.facts",
    "netcommon.host.nfexpr": "netcommon.host.nftables.expressions",
    "netcommon.host.requests": "netcommon.host.api.requests",
    "netcommon.host.requests_flows": "netcommon.host.api.requests",
    "netcommon.host.requests_local": "netcommon.host.api.requests",
    "netcommon.host.requests_port": "netcommon.host.api.requests",
    "netcommon.host.requests_rules": "netcommon.host.api.requests",
    "netcommon.kinds": "netcommon.options.types",
    "netcommon.modes.common": "netcommon.plan.planner",
    "netcommon.modes.communication": "netcommon.modes.instance_communication",
    "netcommon.operations.delivery": "netcommon.operations.guard.egress_filter",
    "netcommon.operations.guard_counters": "netcommon.operations.guard.counters",
    "netcommon.operations.guard_flows": "netcommon.operations.guard.flows",
    "netcommon.operations.guard_keys": "netcommon.operations.guard.keys",
    "netcommon.operations.guard_rules": "netcommon.operations.guard.rules",
    "netcommon.operations.uplink": "netcommon.operations.routed_uplink",
    "netcommon.operations.steady": "netcommon.operations.tap_mac",
    "netcommon.operations.stored": "netcommon.operations.base",
    "netcommon.options_schema": "netcommon.options.schema",
    "netcommon.runner": "netcommon.process.run",
    "netcommon.tags": "netcommon.options.tags",
    "netcommon.trust": "runtime.trust",
}

#: Modules of 0.1 that are packages now, and where what was in them is.
GROWN = {
    "netcommon.host.nftables": ("netcommon.host.api.nftables",),
    "netcommon.operations.guard": ("netcommon.operations.guard.table",),
    "netcommon.options": ("netcommon.options.model", "netcommon.options.sources"),
    "netcommon.plan": ("netcommon.plan.planner",),
    "netcommon.settings": ("netcommon.settings.model", "netcommon.settings.load"),
}


def _is_communication(nic: Nic) -> bool:
    """Tell whether the NIC is of instance communication: netcommon.options.is_communication of 0.1."""
    return str(load("netcommon.options.model").mode_of(nic)) == "instance_communication"


#: Names of 0.1 in modules that have them no more.
LOST: dict[str, dict[str, object]] = {"netcommon.options": {"is_communication": _is_communication}}

#: Names of 0.1 that another module has now than the one that the rest of theirs is in.
ELSEWHERE = {"netcommon.tags": ("netcommon.options.sources",)}


class _Finder:
    """The first importer asked (PEP 451): finds modules by their old names, as modules with the same contents."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MOVED else None  # type: ignore[arg-type]  # a loader by what it has, not by its class

    def create_module(self, spec: ModuleSpec) -> None:
        """The importer's own new module will do."""

    def exec_module(self, module: ModuleType) -> None:
        own = vars(module)
        for home in (MOVED[module.__name__], *ELSEWHERE.get(module.__name__, ())):
            own.update({name: value for name, value in vars(load(home)).items() if name not in own})


_FINDER = _Finder()


def keep() -> None:
    """From now on the old names may be imported."""
    if _FINDER in sys.meta_path:
        return
    sys.meta_path.insert(0, _FINDER)  # before files of 0.1 that somebody's copy of this version has left there
    for package, homes in GROWN.items():
        vars(load(package))["__getattr__"] = _looked_up(package, homes)


def _looked_up(package: str, homes: Sequence[str]) -> object:
    """The function that is asked for what ``package`` itself does not have (PEP 562)."""

    def found(name: str) -> object:
        if name in LOST.get(package, {}):
            return LOST[package][name]
        for home in () if name.startswith("__") else homes:
            try:
                return getattr(load(home), name)
            except AttributeError:
                continue
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return found
