"""mockcloud serve: a cloud that is alive, and takes tasks from programs."""

from __future__ import annotations

import click

from mockcloud.cli.opened import cloud_option, opened
from mockcloud.served.client import SOCKET
from mockcloud.served.server import Server
from netcommon.cli.output import say


@click.command("serve")
@click.option("--seed", type=int, default=1, show_default=True, help="What chance is drawn from.")
@cloud_option
def serve(seed: int, folder: str) -> None:
    """Run all agents, until SIGTERM, and take tasks by HTTP on the socket in the cloud's folder, for root alone.

    Time passes as fast as outside, or faster while a task waits. Meanwhile mockcloud instance asks this process; other commands find
    the cloud in use. GET / lists the tasks; POST /tasks, or /nodes/NODE/tasks, does one: {"task": "start", "params": {"name": "web1"}}.
    """
    with opened(folder, seed=seed) as cloud:
        cloud.start()
        server = Server(cloud)
        try:
            say(f"serving {len(cloud.nodes)} nodes on {cloud.root}/{SOCKET}")
            for text in cloud.failed.values():
                say(f"mockcloud: {text}", err=True)
            server.serve()
        finally:
            server.close()


COMMANDS = {"serve": serve}
