"""Joins virtual machines' host-side devices to the network, and takes them out again.

Layers, top to bottom: doors and cli, lifecycle, plan, modes, operations, host; the package ``runtime`` lies below all of them.
"""

from __future__ import annotations

__version__ = "0.1.0"
