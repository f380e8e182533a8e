"""Say why a NIC would be refused, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from runtime.errors import NicInvalid

if TYPE_CHECKING:
    from runtime.errors import NetcommonError


class Refusal(NamedTuple):
    """Why a NIC is refused. ``variable``, ``value``, ``expected``: "" where it is not one value that is wrong."""

    text: str
    status: int
    variable: str = ""
    value: str = ""
    expected: str = ""


def refusal(error: NetcommonError) -> Refusal:
    """Give an error as values."""
    if isinstance(error, NicInvalid):
        return Refusal(str(error), error.status, error.variable, str(error.value), error.expected)
    return Refusal(str(error), error.status)
