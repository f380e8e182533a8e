"""A NIC from flags, from an environment file, or from the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from runtime.errors import NicInvalid

F = TypeVar("F", bound=Callable[..., object])

#: Option, variable, help. Values are validated with the variables, so that all doors say the same of a wrong one.
FLAGS = (
    ("--interface", "INTERFACE", "The host-side device, such as tap0."),
    ("--mode", "MODE", "bridged, routed, openvswitch or ext."),
    ("--link", "LINK", "The bridge, Open vSwitch bridge, or routing table."),
    ("--mac", "MAC", "The guest's MAC address."),
    ("--ip", "IP", "The guest's IPv4 or IPv6 address."),
    ("--vlan", "VLAN", "VLANs: 10 or .10 access, :10:20 trunk, .10:20 both."),
    ("--instance", "INSTANCE", "The guest's name."),
    ("--index", "INTERFACE_INDEX", "The NIC's position in its guest, from 0."),
    ("--name", "INTERFACE_NAME", "The NIC's own name."),
    ("--network-name", "NETWORK_NAME", "The network's name."),
    ("--network-uuid", "NETWORK_UUID", "The network's UUID."),
    ("--network-subnet", "NETWORK_SUBNET", "The network's IPv4 prefix."),
    ("--network-subnet6", "NETWORK_SUBNET6", "The network's IPv6 prefix."),
    ("--network-gateway", "NETWORK_GATEWAY", "The network's IPv4 gateway."),
    ("--network-gateway6", "NETWORK_GATEWAY6", "The network's IPv6 gateway."),
    ("--network-mac-prefix", "NETWORK_MAC_PREFIX", "The network's MAC prefix, such as aa:00:00."),
)
LISTS = (
    ("--tag", "TAGS", "A tag of the guest, such as netcommon:0:isolated; may be given several times."),
    ("--network-tag", "NETWORK_TAGS", "A tag of the network, such as netcommon:isolated; may be given several times."),
)


def nic_options(command: F) -> F:
    """The flags of a NIC; the command gets them as keywords named as the variables in lower case."""
    for option, variable, text in reversed(LISTS):
        command = click.option(option, variable.lower(), multiple=True, metavar="TAG", help=text)(command)
    for option, variable, text in reversed(FLAGS):
        command = click.option(option, variable.lower(), default=None, metavar="TEXT", help=text)(command)
    return command


def variables(values: Mapping[str, Any]) -> dict[str, str]:
    """The variables that the flags give. Raises NicInvalid for a tag that would be two."""
    found = {variable: values[variable.lower()] for _option, variable, _text in FLAGS if values[variable.lower()] is not None}
    for _option, variable, _text in LISTS:
        tags = values[variable.lower()]
        for tag in tags:
            if " " in tag:
                raise NicInvalid(variable, tag, "one tag, without a space: give the option once for each")
        if tags:
            found[variable] = " ".join(tags)
    return found


def read_environment(path: str) -> dict[str, str]:
    """The variables in a file: NAME=VALUE lines, or NUL separated as in /proc/PID/environ. "-" is stdin; a folder's file ``environ``.

    Raises NicInvalid, naming the line.
    """
    try:
        if path == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(os.path.join(path, "environ") if os.path.isdir(path) else path, "rb") as file:
                data = file.read()
    except OSError as error:
        raise NicInvalid("--env-file", path, f"a file that can be read: {error.strerror}") from None
    found = {}
    dumped = b"\0" in data
    for line in os.fsdecode(data).split("\0" if dumped else "\n"):
        if not line.strip() or (not dumped and line.lstrip().startswith("#")):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name:
            raise NicInvalid("--env-file", line, "lines of NAME=VALUE, or the same separated by NUL bytes")
        found[name] = value
    return found
