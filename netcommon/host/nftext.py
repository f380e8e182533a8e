"""Rules in the words of nft(8), by libnftables(3), which is loaded for them alone."""

from __future__ import annotations

import ctypes
import errno
import os

from netcommon.host.base import DONE, Answer
from netcommon.host.nftables import BRIDGE, INET, MARK
from netcommon.host.requests_rules import LoadRules

FAMILIES = {BRIDGE: "bridge", INET: "inet"}
LIBRARY = "libnftables.so.1"

#: libnftables ends the process when the descriptor that it opens is not below this (FD_SETSIZE of select(2)).
FIRST_TOO_HIGH = 1024


def text_of(request: LoadRules) -> str:
    """The transaction. What is in the set outlives ``flush table``, which takes rules alone."""
    where = f"{FAMILIES[request.family]} {request.table}"
    rules = "".join(f"    {rule}\n" for rule in request.rules)
    return (
        f'add table {where} {{ comment "{MARK} firewall"; }}\nflush table {where}\n'
        f"table {where} {{\n  set nics {{\n    type ifname\n  }}\n  chain rules {{\n{rules}  }}\n"
        f"  chain forward {{\n    type filter hook forward priority -10\n    oifname @nics goto rules\n  }}\n}}\n"
    )


class RulesByText:
    """Carries LoadRules out (netcommon.host.base.Service)."""

    def execute(self, request: LoadRules) -> Answer:
        """One transaction, by the library."""
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
        try:
            library.nft_ctx_buffer_error(context)
            library.nft_ctx_buffer_output(context)
            if library.nft_run_cmd_from_buffer(context, text_of(request).encode()) == 0:
                return DONE
            told = (library.nft_ctx_get_error_buffer(context) or b"").decode("utf-8", "replace")
            number = ctypes.get_errno() or errno.EINVAL
            lacking = "; this kernel tracks no connections on bridges: modprobe nf_conntrack_bridge" if number == errno.EPROTO else ""
            return Answer(number, f"table {request.table}: {_shortly(told)}{lacking}")
        finally:
            library.nft_ctx_free(context)


def _shortly(told: str) -> str:
    """The library's complaint in one line: what is wrong, and the line it is in."""
    lines = [line.strip() for line in told.splitlines() if line.strip() and set(line.strip()) != {"^"}]
    return ": ".join(lines[:2]) or "refused"
