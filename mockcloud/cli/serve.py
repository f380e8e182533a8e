"""mockcloud serve: a cloud that is alive, and takes tasks from programs."""

from __future__ import annotations

import click

from mockcloud.cli.opened import cloud_option, opened, registry_option
from mockcloud.instances.running import forget
from mockcloud.served.client import SOCKET
from mockcloud.served.server import Server
from netcommon.cli.output import say


@click.command("serve")
@click.option("--seed", type=int, default=1, show_default=True, help="What chance is drawn from.")
@cloud_option
@registry_option
def serve(seed: int, folder: str, registry: str) -> None:
    """Run all agents, until SIGTERM, and take tasks by HTTP on the socket in the cloud's folder, for root alone.

    Time passes as fast as outside, or faster while a task waits. Where the registry is a process of its own, it is the time of this
    machine. Other commands ask this process meanwhile. GET / lists the tasks; POST /tasks, or /nodes/NODE/tasks, does one of instances:
    {"task": "start", "params": {"name": "web1"}}; POST /nodes one of nodes and networks: {"task": "count", "params": {"number": 10}}.
    """
    with opened(folder, seed=seed, registry=registry) as cloud:
        forget(cloud)
        cloud.start()
        server = Server(cloud, lambda text: say(f"mockcloud: {text}", err=True))
        try:
            say(f"serving {len(cloud.nodes)} nodes on {cloud.root}/{SOCKET}")
            for text in cloud.failed.values():
                say(f"mockcloud: {text}", err=True)
            server.serve()
        finally:
            server.close()


COMMANDS = {"serve": serve}
