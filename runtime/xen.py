"""Reader of the NIC files of Ganeti's Xen driver: xen-hypervisor/nic/<instance>/<devid>.

They are made to be sourced by a shell, but a NIC's name stands in them unquoted and as its owner chose it, so sourcing one runs what
anybody who may name a NIC wrote there. Here it is parsed, by the exact form that hv_xen._WriteNICInfoFile gives it.
"""

from __future__ import annotations

from runtime import validate
from runtime.errors import HostRefused, NicInvalid, RecordUnreadable
from runtime.folder import Folder
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.paths import Paths

LONGEST = 1 << 20

#: Written after the NIC's name: a line break in the name cannot bring in any other variable, nor these twice.
_AFTER_NAME = frozenset({"INTERFACE_UUID", "MODE", "LINK", "VLAN"})


def parse(data: bytes) -> dict[str, str]:
    """The variables of a NIC file. Raises NicInvalid for a line that is no assignment, or one that Ganeti does not write there."""
    found: dict[str, str] = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        if not line:
            continue
        variable, equals, value = line.partition("=")
        if not equals or not _is_variable(variable):
            raise NicInvalid("NIC file", line, "lines of VARIABLE=value")
        if variable in found:
            raise NicInvalid(variable, value, "to be set once in a NIC file")
        if "INTERFACE_NAME" in found and variable not in _AFTER_NAME:
            raise NicInvalid(variable, value, "not to be set after INTERFACE_NAME in a NIC file")
        found[variable] = value if variable == "INTERFACE_NAME" else _unquoted(variable, value)
    return found


def read(paths: Paths, instance: str, devid: int) -> dict[str, str] | None:
    """The variables for device ``devid`` of ``instance``, INSTANCE included, INTERFACE not; None where there is no file.

    Raises NicInvalid, and HostRefused where the file cannot be read or trusted.
    """
    validate.instance(instance)
    folder = Folder.find(f"{paths.xen_run}/nic/{instance}", ours=False)
    if folder is None:
        return None
    with folder:
        try:
            data = folder.read(str(validate.index(str(devid))), LONGEST)
        except RecordUnreadable as error:
            raise HostRefused(str(error)) from None
    return parse(data) | {"INSTANCE": instance} if data is not None else None


def _is_variable(text: str) -> bool:
    return text.isascii() and text.replace("_", "A").isalnum() and text.upper() == text and not text[0].isdigit()


def _unquoted(variable: str, value: str) -> str:
    r"""The value without its double quotes.

    Ganeti joins tags with "\ " within double quotes, where a shell would keep the backslash: a blank is what it means.
    """
    if not value.startswith('"'):
        return value
    plain: list[str] = []
    characters = iter(value[1:])
    for char in characters:
        if char == '"':
            if next(characters, None) is not None:
                break
            return "".join(plain)
        plain.append(next(characters, "") if char == "\\" else char)
    raise NicInvalid(variable, value, "one value in double quotes")
