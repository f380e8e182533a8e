"""Simulate a host in plain values, for tests and for showing what would be done."""
