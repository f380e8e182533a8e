"""Run one script for the agent, outside of its unit: `python3 -IS script_launcher.py`, with what to run on standard input.

See netagent.scripts. It ends with status 0 and says on standard output how the script ended.
"""

from __future__ import annotations

import json
import os
import sys
import time

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from netagent.scripts import MAGIC
from netcommon.process.run import run
from netcommon.scripts.site import GUARD


def main() -> None:
    """Runs the script."""
    given = json.loads(sys.stdin.buffer.read())
    os.umask(0o077)  # Ganeti's, under which its hooks and so these scripts run
    environment = {os.fsencode(name): os.fsencode(value) for name, value in given["environment"].items()}
    _guarded(environment)
    ended = run(given["argv"], environment, given["seconds"], given["limit"], time.monotonic)
    said = {**ended._asdict(), "output": None}
    sys.stdout.buffer.write(MAGIC + json.dumps(said).encode("ascii") + b"\n" + ended.output)
    sys.stdout.buffer.flush()


def _guarded(environment: dict[bytes, bytes]) -> None:
    """The guard names us as the door that runs the script: a daemon that inherits it must not do so as long as the agent lives."""
    uuid, _, rest = environment.get(os.fsencode(GUARD), b"").partition(b" ")
    _pid, _, tap = rest.partition(b" ")
    if uuid:
        environment[os.fsencode(GUARD)] = b"%b %d %b" % (uuid, os.getpid(), tap)


if __name__ == "__main__":
    main()
