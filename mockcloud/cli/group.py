"""The group of mockcloud's subcommands: knows their names and help, and imports each one only to run it."""

from __future__ import annotations

import click

from netcommon import __version__
from netcommon.cli.group import LazyGroup

#: As netcommon.cli.group.GROUPS, of modules below mockcloud.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Nodes": {
        "create": ("cli.nodes", "Make simulated nodes."),
        "count": ("cli.nodes", "Let there be so many nodes, or count them."),
        "delete": ("cli.nodes", "Delete nodes, and what the registry has of them."),
        "list": ("cli.nodes", "List the nodes."),
        "status": ("cli.nodes", "Run the nodes' agents for a while, and say how they stand."),
        "nics": ("cli.nodes", "Give every node a NIC of its own in a network, or take it away."),
        "serve": ("cli.serve", "Keep a cloud alive, and take tasks from programs."),
        "nictags": ("cli.networks", "Say which NIC tags nodes should provide, and change them."),
    },
    "Instances": {
        "network": ("cli.networks", "Let there be a network."),
        "instance": ("cli.instances", "Create, run, move and delete instances."),
    },
    "Faults": {
        "run": ("cli.scenarios", "Run a scenario from a file on a cloud of its own."),
        "fault": ("cli.scenarios", "Let something go wrong in a cloud, and look what becomes of it."),
        "explore": ("cli.explore", "Search for faults by scenarios that are drawn from seeds."),
    },
    "Rehearsal": {
        "import": ("rehearsal.command", "Copy a cluster: a registry's export, or Ganeti's config.data."),
        "rehearse": ("rehearsal.command", "Say what new settings or tags would come to on a copy."),
    },
}


class Mockcloud(LazyGroup):
    """Commands by GROUPS."""

    groups = GROUPS
    package = "mockcloud"


@click.group(cls=Mockcloud, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, message="%(prog)s %(version)s")
def mockcloud() -> None:
    """Simulate a cluster: the agents and the registry that run in production, on simulated nodes, in one process.

    A cloud is a folder: --cloud, else the variable MOCKCLOUD, else /var/lib/mockcloud. Nothing outside of it is touched. Each command
    runs as much of it as it needs, by a virtual clock that stands still in between.

    Exit status: 0 done; 2 wrong usage; 64 a value is wrong; 69 refused; 74 the output cannot be written; 75 try again; 78 the settings
    are wrong.
    """
