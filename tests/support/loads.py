"""Limit how many modules a cold hook loads, and name which it never does.

Each costs a hook a tenth of a millisecond and more, whatever it is for. The numbers are what it loads today: who adds a module measures
what it costs, and takes another one out of the way or raises the number. tests/bench holds the time that all of it takes. The last raise
was for gc and _functools, which are compiled into the interpreter: 0.12 ms together, where they save a guarded up two and more.
"""

from __future__ import annotations

#: Modules beside those of the interpreter itself, at most, by mode and direction; of a NIC with the spoof guard where nothing else is said.
MOST = {
    ("bridged", "up"): 106,
    ("bridged", "down"): 95,
    ("routed", "up"): 113,
    ("routed", "down"): 98,
    ("openvswitch", "up"): 118,
    ("openvswitch", "down"): 95,
    ("openvswitch unguarded", "up"): 101,
    ("openvswitch unguarded", "down"): 88,
    ("ext", "up"): 89,
}

#: What costs milliseconds, or a fork: no hook without a script of the site loads any of it.
DEAR = {
    *("argparse", "asyncio", "click", "dataclasses", "hashlib", "inspect", "jinja2", "logging", "pathlib", "pyroute2"),
    *("shutil", "subprocess", "tempfile", "threading", "tomllib", "traceback", "uuid"),
}

#: What begins so is for others: a hook of this mode never loads it.
ELSEWHERE = {
    "bridged": {"netcommon.host.ovs", "netcommon.modes.routed", "netcommon.options.tags", "netcommon.process"},
    "routed": {"netcommon.host.ovs", "netcommon.modes.bridged", "netcommon.options.tags", "netcommon.process"},
    "openvswitch": {"netcommon.host.nftables.client", "netcommon.modes.bridged", "netcommon.modes.routed", "netcommon.process"},
    "ext": {"netcommon.host.nftables.client", "netcommon.host.ovs", "netcommon.operations.guard", "netcommon.process"},
}
