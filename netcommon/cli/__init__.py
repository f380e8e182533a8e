"""Provide the command line ``netcommon``, the door for people. Subcommands are imported when they are called, so that help is quick."""

from __future__ import annotations


def main() -> None:
    """The console script."""
    import signal
    import sys

    from netcommon.cli import signals, streams
    from runtime.errors import Interrupted

    try:
        signals.take()
        streams.take()
        from netcommon.cli.group import netcommon

        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where the caller ignores it nobody tells how a script ended (wait(2))
        netcommon.main(prog_name="netcommon")
    except streams.UnwrittenError as error:
        sys.exit(streams.end(error))
    except Interrupted:
        signals.end()
    finally:
        signals.leave()
