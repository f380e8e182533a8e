"""Provide the command line ``netcommon``, the door for people. Subcommands are imported when they are called, so that help is quick."""

from __future__ import annotations


def main() -> None:
    """The console script."""
    begin("netcommon.cli.group", "netcommon")


def begin(module: str, program: str) -> None:
    """Run a command line: the group that ``module`` has under the name of ``program``."""
    import signal
    import sys
    from importlib import import_module

    from netcommon.cli import signals, streams
    from runtime.errors import Interrupted

    try:
        signals.take()
        streams.take()
        group = getattr(import_module(module), program)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where the caller ignores it nobody tells how a script ended (wait(2))
        group.main(prog_name=program)
    except streams.UnwrittenError as error:
        sys.exit(streams.end(error, program))
    except Interrupted:
        signals.end(program)
    finally:
        signals.leave()
