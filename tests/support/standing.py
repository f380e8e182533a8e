"""The standing of an agent, as its status shows it."""

from __future__ import annotations

from netagent.observe.status import Standing

NETNS = 4711
AGENT = {"nics": {"up": 4990, "closing": 10}, "resync": "took 0.4 s", "waiting": 0, "sources": ["kernel", "ovs"], "lag": 0.25, "none": {}}


def standing() -> Standing:
    """Return that of a process 77 that has run for a while."""
    made = Standing(77, NETNS, 1.7e9, 1000.0)
    made.state, made.settings, made.turned, made.text = "running", "in force", 1099.5, "5000 NICs"
    return made
