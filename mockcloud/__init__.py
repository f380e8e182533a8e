"""Simulate a cluster: thousands of nodes with the real agent in one process and one thread, by a virtual clock and from a seed."""
