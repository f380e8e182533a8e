"""Provide the doors for machines, which the executables in hooks/ run: one module per calling convention."""
