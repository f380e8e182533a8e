"""Tell what of a guest's packets the kernel drops though all that was done for its NIC holds, and what helps."""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from netcommon.host.api.host import View
    from netcommon.operations.base import Operation
    from runtime.nic import Nic


def dropped(view: View, nic: Nic, operations: Sequence[Operation]) -> Sequence[tuple[str, str]]:
    """Return pairs: what is dropped and why, and the remedy. Raises TryAgain."""
    if nic.mode != "routed":
        return ()
    from netcommon.operations.sysctl import reverse_path

    if not any(reverse_path(view, nic.interface)):
        return ()
    from netcommon.operations import reverse_path as filtering  # where no such filter is on, nothing is asked

    return filtering.dropped(view, operations)
