"""Join the host-side devices of virtual machines to the network, and take them out again.

Layers, top to bottom: doors and cli, lifecycle, plan, modes, operations, host; the package ``runtime`` lies below all of them.
"""

from __future__ import annotations

__version__ = "0.1.0"
