"""Rules in the words of nft(8), by libnftables(3), which is loaded for them alone."""

from __future__ import annotations

import ctypes
import errno
import os

from netcommon.host.api.host import Answer
from netcommon.host.api.nftables import NftChain, NftTable, Put
from netcommon.host.api.requests import NftChange
from netcommon.host.nftables.profile_table import MADE, fingerprint, layouts, text_of
from runtime.errors import NetcommonError
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from netcommon.host.api.host import View
    from netcommon.host.api.requests import LoadRules
    from netcommon.host.nftables.client import Nftables

LIBRARY = "libnftables.so.1"

#: libnftables ends the process when the descriptor that it opens is not below this (FD_SETSIZE of select(2)).
FIRST_TOO_HIGH = 1024


class RulesByText:
    """Carries LoadRules out (netcommon.host.api.host.Service)."""

    def __init__(self, nftables: Nftables, view: Callable[[], View]) -> None:
        self._nftables, self._view = nftables, view

    def execute(self, request: LoadRules) -> Answer:
        """One transaction, by the library; and one that notes what came of it. Without the second the tables do not pass for whole."""
        try:
            library = ctypes.CDLL(LIBRARY, use_errno=True)
        except OSError as problem:
            return Answer(errno.EOPNOTSUPP, f"table {request.table}: no {LIBRARY}, install Debian's libnftables1 ({problem})")
        probe = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.close(probe)
        if probe >= FIRST_TOO_HIGH - 1:
            return Answer(errno.EMFILE, f"table {request.table}: {probe} descriptors are open, more than libnftables can bear")
        library.nft_ctx_new.restype = ctypes.c_void_p
        library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
        context = ctypes.c_void_p(library.nft_ctx_new(0))
        if context.value is None:
            return Answer(errno.ENOMEM, f"table {request.table}: libnftables gives no context")
        for layout in layouts(request.family, request.table, ()):
            self._nftables.wake(NftTable(layout.family, layout.name))
        try:
            library.nft_ctx_buffer_error(context)
            library.nft_ctx_buffer_output(context)
            if library.nft_run_cmd_from_buffer(context, text_of(*request).encode()) == 0:
                return self._note(request)
            told = (library.nft_ctx_get_error_buffer(context) or b"").decode("utf-8", "replace")
            number = ctypes.get_errno() or errno.EINVAL
            lacking = "; this kernel tracks no connections on bridges: modprobe nf_conntrack_bridge" if number == errno.EPROTO else ""
            return Answer(number, f"table {request.table}: {_shortly(told)}{lacking}")
        finally:
            library.nft_ctx_free(context)

    def _note(self, request: LoadRules) -> Answer:
        """Puts the fingerprint of what was loaded into the table."""
        what = f"table {request.table}"
        try:
            made = NftChain(request.family, request.table, MADE, comment=fingerprint(self._view(), request.family, request.table))
        except NetcommonError as problem:
            return Answer(errno.EAGAIN, f"{what}: loaded, but not to be read back: {problem}")
        return self._nftables.execute(NftChange(what, (Put(made),), "try again"))


def _shortly(told: str) -> str:
    """The library's complaint in one line: what is wrong, and the line it is in."""
    lines = [line.strip() for line in told.splitlines() if line.strip() and set(line.strip()) != {"^"}]
    return ": ".join(lines[:2]) or "refused"
