"""The site's scripts for one NIC in one call (netcommon.scripts.site says which and how)."""

from __future__ import annotations

import os

from netcommon.options.model import INSTANCE_COMMUNICATION, mode_of
from netcommon.scripts import site as custom
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netcommon.lifecycle.context import Call, Node
    from netcommon.log import Log
    from runtime.nic import Nic
    from runtime.record import Record


def order_of(node: Node, nic: Nic) -> custom.Plan:
    """Which of the site's scripts there are for ``nic``, and whether those of up take the place of the built-in."""
    communication = mode_of(nic) == INSTANCE_COMMUNICATION
    # as in Ganeti 3.2's kvm-nic-setup: a communication NIC is kvm-ifup-os's, whatever the site has for mode routed
    modes = () if communication else (nic.mode,)
    order = custom.order(node.paths, node.settings, node.hooks, modes, kvm="XENBUS_PATH" not in nic.environment)
    if communication:
        from netcommon.scripts.kvm_ifup_os import own_script

        system = own_script(node.paths, node.hooks)
        order = order._replace(instead=bool(system), up=(*system, *order.up))
    return order


def set_up_instead(node: Node, record: Record) -> bool:
    """Tell whether a script of the site's has set the NIC up, in the place of the built-in, whatever scripts there are today.

    Of such a NIC no operation is on record. So it is of one of mode ext, where only today's scripts tell.
    """
    if record.operations or not record.scripts:
        return False
    return record.nic.mode != "ext" or order_of(node, record.nic).instead


NAME, ENDPOINT = "underlay.json", "NETCOMMON_ENDPOINT_"  #: as in netcommon.lifecycle.underlay, which few nodes load


class Scripts:
    """The scripts of ``nic``: after the built-in up, or instead of it, and before the built-in down."""

    def __init__(self, node: Node, call: Call, nic: Nic) -> None:
        self._node, self._call, self._nic = node, call, nic
        self._order = order_of(node, nic)
        self.instead = self._order.instead
        self.begun = False  #: those of up have: what fails then is theirs

    @property
    def any(self) -> bool:
        """Whether a script has run by the end of up, so that those of down are owed."""
        return bool(self._order.up or self._order.down)

    def check(self) -> None:
        """Raises HostRefused for a script that must not be run, or is missed: before anything is touched. One that is missed elsewhere
        than in Ganeti 3.2 is a warning.
        """
        extended = any(table.get("adds") == "mode" for table in self._node.settings.extensions.values())
        if self._nic.mode == "ext" and not (self._order.up or extended):
            missed = f"{self._node.paths.ganeti_etc}/network/ext/up"
            if self._call.door == "kvm-nic-setup":
                raise HostRefused(f"there is no script {missed}, and nobody else sets up a NIC of mode ext", "write it, or an extension")
            self._call.log.warning(f"mode ext: there is no script {missed}, no other of the site's and no extension, so nothing is done")
        for script in self._order.up:
            if script.problem:
                raise HostRefused(f"custom script {script.path} is not run: {script.problem}")

    def up(self) -> None:
        """Runs the scripts of up; the first that fails ends it. Raises HostRefused."""
        if not self._order.up:
            return
        self.begun = True
        results = self._run(self._order.up, stop=True, instead=self.instead)
        if results and not results[-1].ok:
            raise HostRefused(f"custom script {results[-1].script.path} {results[-1].error}")

    def down(self) -> None:
        """Runs the scripts of down; each is tried, a failure is logged and stops nothing."""
        if self._order.down:
            self._run(self._order.down, stop=False, ends=True)

    def _run(self, scripts: tuple[custom.Script, ...], stop: bool, instead: bool = False, ends: bool = False) -> list[custom.Result]:
        node, call = self._node, self._call
        given = self._custom(ends)._replace(instead=instead)
        return custom.run_each(scripts, given, node.settings, call.deadline, call.log, stop, node.clock.now, node.execute)

    def _custom(self, ends: bool) -> custom.Call:
        nic, call = self._nic, self._call
        record = self._node.store.path(nic.uuid)
        given = nic.environment
        if given.get("INTERFACE", nic.interface) != nic.interface:
            given = {**given, "INTERFACE": nic.interface}  # renamed since
        given = {**_without_endpoints(given), **_endpoints(self._node, nic, call.log, ends)}
        return custom.Call(nic.interface, call.context, given, nic.uuid, call.phase, record)


def changed(node: Node, call: Call, nic: Nic, options: Sequence[tuple[str, object, object]]) -> None:
    """Run the site's scripts of ifchange.d: ``options`` have changed, each with its value before and after. A failure is logged."""
    scripts = custom.beside(node.paths, "ifchange.d", node.hooks)
    if not scripts:
        return
    told = {"NETCOMMON_CHANGED": " ".join(name for name, _before, _after in options)}
    for name, before, after in options:
        told |= {f"NETCOMMON_OLD_{name.upper()}": _said(before), f"NETCOMMON_NEW_{name.upper()}": _said(after)}
    variables = {**_without_endpoints(nic.environment), "INTERFACE": nic.interface, **told, **_endpoints(node, nic, call.log)}
    given = custom.Call(nic.interface, custom.CHANGE, variables, nic.uuid, record=node.store.path(nic.uuid))
    custom.run_each(scripts, given, node.settings, call.deadline, call.log, False, node.clock.now, node.execute)


def _without_endpoints(given: Mapping[str, str]) -> Mapping[str, str]:
    """Give an environment without what a script of another NIC was told, which has called a door for this one."""
    return {name: value for name, value in given.items() if not name.startswith(ENDPOINT)}


def _endpoints(node: Node, nic: Nic, log: Log, ends: bool = False) -> dict[str, str]:
    """Give what scripts are told of the endpoints of the NIC's instance. Most nodes have none, which is one look for a file."""
    if not os.path.exists(f"{node.paths.lib}/{NAME}"):
        return {}
    from netcommon.lifecycle.underlay import variables

    return variables(node, nic.instance, log, ends, nic.uuid)


def _said(value: object) -> str:
    """Give the value of an option as a tag would: yes and no, and lists with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


class _None:
    """No scripts: for NICs that are adopted, which the site's scripts have seen already."""

    instead = any = begun = False

    def check(self) -> None:
        """Nothing to refuse."""

    def up(self) -> None:
        """Nothing to run."""


NONE = _None()
