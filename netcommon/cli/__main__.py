"""``python -m netcommon.cli``: the command line of a checkout that nobody has installed."""

from __future__ import annotations

from netcommon.cli import main

main()
