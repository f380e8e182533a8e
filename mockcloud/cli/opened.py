"""Open a cloud for one command, and find its nodes by name."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mockcloud import state
from mockcloud.cloud import MockCloud
from mockcloud.nodes import perform
from mockcloud.own_service import named
from mockcloud.served.client import ask, connection
from runtime.errors import HostRefused, NicInvalid, escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "/var/lib/mockcloud"
VARIABLE = "MOCKCLOUD"


def not_empty(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Give what an option says; refuse nothing, which a variable of a shell is that is not set. Raises NicInvalid."""
    if value == "" and ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
        raise NicInvalid(param.opts[0], value, f"{param.metavar or 'a text'}, or no such option")
    return value


#: For every subcommand that works on a cloud.
cloud_option = click.option(
    "--cloud",
    "folder",
    metavar="FOLDER",
    default=FOLDER,
    envvar=VARIABLE,
    callback=not_empty,
    show_default=True,
    help="The cloud's folder.",
)


registry_option = click.option(
    "--registry",
    default="",
    metavar="SOCKET|URL|etcd:N",
    callback=not_empty,
    help="The socket of a registry's service on this machine, https://HOST:PORT of one elsewhere, or etcd:3 for a service of its own over "
    "an etcd of three members, instead of a registry in this process: said once, when the cloud is made.",
)


@contextmanager
def opened(folder: str, new: bool = False, seed: int = 1, profile: str = "plain", registry: str = "") -> Iterator[MockCloud]:
    """Open the cloud of a folder, and close it. ``new``: one that is not there is made. ``registry``: as the option has it.

    Raises HostRefused where there is none; TryAgain where another process is at work on it.
    """
    if not new and not state.there(folder):
        raise HostRefused(f"there is no mock cloud in {escaped(folder)}", "mockcloud create makes one; --cloud names another folder")
    cloud = MockCloud(folder, seed, profile, named(registry) if registry else "")
    try:
        yield cloud
    finally:
        cloud.close()


def done(
    folder: str, task: str, given: dict[str, Any], new: bool = False, profile: str = "plain", registry: str = "", seed: int = 1
) -> dict[str, Any]:
    """Do a task of mockcloud.nodes to the cloud of a folder, here or by the process that serves it; give its document.

    Raises as ``opened``, and as the task does.
    """
    connected = connection(folder)
    if connected is not None:
        with connected:
            if registry:
                state.agree(os.path.abspath(folder), state.read(folder), named(registry))
            return ask(connected, "POST", "/nodes", {"task": task, "params": given})
    with opened(folder, new, seed, profile, registry) as cloud:
        return perform(cloud, task, given)
