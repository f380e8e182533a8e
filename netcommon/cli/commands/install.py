"""netcommon install: the hooks, where a hypervisor expects them."""

from __future__ import annotations

import click

from netcommon.cli.app import App
from netcommon.cli.output import answer, json_option, say, table
from netcommon.cli.progress import progress_option, steps
from runtime.errors import HostRefused, NetcommonError


@click.command("install")
@click.option("--ganeti", "kinds", flag_value="ganeti", multiple=True, help="The scripts and hooks of Ganeti's KVM driver.")
@click.option("--qemu", "kinds", flag_value="qemu", multiple=True, help="/etc/qemu-ifup and /etc/qemu-ifdown, which plain QEMU calls.")
@click.option("--xen", "kinds", flag_value="xen", multiple=True, help="The vif script of Ganeti's Xen driver.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--uninstall", is_flag=True, help="Take the hooks out, and put back what was there.")
@progress_option
@json_option
@click.pass_context
def install(ctx: click.Context, kinds: tuple[str, ...], dry_run: bool, uninstall: bool, progress: bool, as_json: bool) -> None:
    """Put the hooks where a hypervisor expects them. What they replace is kept, and put back by --uninstall.

    Installing again changes nothing.
    """
    from netcommon.install import Action
    from netcommon.install import install as put

    app: App = ctx.obj
    if not kinds:
        raise click.UsageError("name what to install for: --ganeti, --qemu, --xen")
    if not (dry_run or app.is_root):
        raise HostRefused("this changes the host, which only root can do", "run it as root")
    rows: list[tuple[str, Action]] = []
    status, failed = 0, []
    with steps("install", wanted=progress) as step:
        for kind in dict.fromkeys(kinds):
            step(f"for {kind}")
            try:
                rows += [(kind, action) for action in put(kind, app.root, dry_run, uninstall)]
            except NetcommonError as error:  # the others are told of, and done, all the same
                failed.append(f"netcommon: {kind}: {error}")
                status = status or error.status
    for line in failed:  # when the line of the progress is gone
        say(line, err=True)
    if as_json:
        answer("install", actions=[{"for": kind, **action._asdict()} for kind, action in rows])
    elif rows:
        say(table(("FOR", "WHAT", "PATH", "WHY"), [(kind, *action) for kind, action in rows]))
    elif not status:
        say("nothing to do: it is installed already" if not uninstall else "nothing to do: nothing is installed")
    ctx.exit(status)


COMMANDS = {"install": install}
