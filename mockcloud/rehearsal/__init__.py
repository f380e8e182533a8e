"""Rehearse a change of settings or tags on a copy of a cluster: the real lifecycle on simulated hosts; no node is touched or asked."""
