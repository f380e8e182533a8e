"""Touch the machine, as no other code does: one narrow interface (api), two hosts (linux, simulated)."""
