"""Ask the kernel how many programs of BPF stand at a device by TCX, which rtnetlink does not tell (bpf(2), BPF_PROG_QUERY; Linux 6.6)."""

from __future__ import annotations

import ctypes
import errno
import os
from struct import Struct

#: bpf()'s number by machine (asm/unistd.h).
NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "loongarch64": 280, "ppc64le": 361, "s390x": 351, "i686": 357, "armv7l": 386}
PROG_QUERY, INGRESS, EGRESS = 16, 46, 47  #: BPF_PROG_QUERY, BPF_TCX_INGRESS, BPF_TCX_EGRESS (linux/bpf.h)
QUERY = Struct("=IIIIQIIQQQQ")  #: union bpf_attr, query: device, place, flags, attach_flags, ids, count, pad, three arrays, revision
COUNT = 5
NONE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENODEV})  #: the kernel is older, or has no TCX, or no such device


def programs(index: int, egress: bool) -> int | None:
    """Count the programs of one side of a device; None where the kernel does not say."""
    number = NUMBERS.get(os.uname().machine)
    if number is None:
        return None
    asked = ctypes.create_string_buffer(QUERY.pack(index, EGRESS if egress else INGRESS, *(0 for _ in range(9))), QUERY.size)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, PROG_QUERY, asked, QUERY.size) == 0:
        return int(QUERY.unpack(asked.raw)[COUNT])
    return 0 if ctypes.get_errno() in NONE else None
