"""Ganeti's VLAN notation (gnt-instance(8), "vlan"): ".10" or "10" access, ":10:20" trunk, ".10:20" hybrid."""

from __future__ import annotations

from runtime.errors import NicInvalid
from runtime.typed import NamedTuple

EXPECTED = "'' or .VID, VID, :VID[:VID...] or .VID:VID[:VID...], each VID 1 to 4094 and named once"


class Vlan(NamedTuple):
    """The VLANs of a port: ``access`` is untagged (the pvid), ``trunks`` are tagged, in the order given."""

    access: int | None = None
    trunks: tuple[int, ...] = ()

    def __str__(self) -> str:
        access = "" if self.access is None else f".{self.access}"
        return access + "".join(f":{vid}" for vid in self.trunks)

    def __bool__(self) -> bool:
        return self.access is not None or bool(self.trunks)

    @property
    def vids(self) -> tuple[int, ...]:
        """All VIDs, the untagged one first."""
        return (() if self.access is None else (self.access,)) + self.trunks


NO_VLAN = Vlan()


def parse_vlan(text: str, variable: str = "VLAN") -> Vlan:
    """Reads the notation; "" is no VLAN. Raises NicInvalid."""
    if not text:
        return NO_VLAN
    dotted = text.startswith(".")
    first, *rest = text.removeprefix(".").split(":")
    if (not first and dotted) or (first and rest and not dotted) or (not first and not rest):
        raise NicInvalid(variable, text, EXPECTED)
    access = _vid(first, text, variable) if first else None
    vlan = Vlan(access, tuple(_vid(part, text, variable) for part in rest))
    if len(set(vlan.vids)) != len(vlan.vids):
        raise NicInvalid(variable, text, EXPECTED)
    return vlan


def _vid(part: str, text: str, variable: str) -> int:
    if not (part.isascii() and part.isdigit() and len(part) <= 4 and 1 <= int(part) <= 4094):
        raise NicInvalid(variable, text, EXPECTED)
    return int(part)
