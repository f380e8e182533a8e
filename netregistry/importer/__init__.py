"""Bring what a Ganeti cluster's configuration says into a registry, as the master of those NICs and networks."""
