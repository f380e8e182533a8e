"""Finds dnspython for a process that runs isolated: beside us (vendor/: the Debian package), in the checkout's .venv, or in the system.

The doors run without site-packages, so that nobody's get into a root process; only what needs dnspython looks for it.
"""

from __future__ import annotations

import os
import sys

from runtime.errors import HostRefused

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

PLACES = (
    f"{CHECKOUT}/vendor",
    f"{CHECKOUT}/.venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages",
    "/usr/lib/python3/dist-packages",
)


def find() -> None:
    """Makes ``import dns`` work. Raises HostRefused where there is no dnspython."""
    for place in ("", *PLACES):
        if place and place not in sys.path:
            sys.path.append(place)
        try:
            import dns.version  # noqa: F401
        except ImportError:
            continue
        return
    raise HostRefused("there is no dnspython", "install Debian's python3-dnspython, or run tests/setup runtime in the checkout")
