"""``python -m netagent``: the agent without the command line's help."""

from __future__ import annotations

import sys

from netagent.agent import run
from runtime.errors import NetcommonError

if __name__ == "__main__":
    try:
        sys.exit(run(verbose="-v" in sys.argv[1:]))
    except NetcommonError as error:
        print(f"netcommon: {error}", file=sys.stderr)
        sys.exit(error.status)
