"""Load the smallest programs of BPF, and put them at a device or into a route: what they do is the value that they return."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterator

NUMBERS = {"x86_64": 321, "aarch64": 280}
PROG_LOAD, PROG_ATTACH, LINK_CREATE = 5, 8, 28
SCHED_CLS, XDP_KIND = 3, 6  #: BPF_PROG_TYPE_*
TCX_INGRESS, TCX_EGRESS, XDP = 46, 47, 37  #: BPF_TCX_INGRESS, BPF_TCX_EGRESS, BPF_XDP
TC_NEXT, TC_DROP, XDP_DROP, XDP_PASS = -1, 2, 1, 2


def _bpf(command: int, fields: bytes) -> int:
    asked = ctypes.create_string_buffer(fields, len(fields))
    found = ctypes.CDLL(None, use_errno=True).syscall(NUMBERS[os.uname().machine], command, asked, len(fields))
    if found < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command})")
    return int(found)


def _loaded(kind: int, value: int, place: int) -> int:
    """Load ``return value``."""
    code = ctypes.create_string_buffer(struct.pack("=BBhiBBhi", 0xB7, 0, 0, value, 0x95, 0, 0, 0), 16)
    licence = ctypes.create_string_buffer(b"GPL")
    where = ctypes.addressof(code), ctypes.addressof(licence)
    return _bpf(PROG_LOAD, struct.pack("=IIQQIIQII16sII", kind, 2, *where, 0, 0, 0, 0, 0, b"", 0, place))


@contextlib.contextmanager
def attached(device: str, place: int, value: int, by_link: bool = False) -> Iterator[None]:
    """Have a program see the frames of a device: by itself, or by a link, which goes with its descriptor."""
    kind = XDP_KIND if place == XDP else SCHED_CLS
    program, index = _loaded(kind, value, place), socket.if_nametoindex(device)
    held = [program]
    try:
        if by_link or place == XDP:
            held.append(_bpf(LINK_CREATE, struct.pack("=IIIIIIQ", program, index, place, 0, 0, 0, 0)))
        else:
            _bpf(PROG_ATTACH, struct.pack("=IIIIIIQ", index, program, place, 0, 0, 0, 0))
        yield
    finally:
        for each in held:
            os.close(each)
