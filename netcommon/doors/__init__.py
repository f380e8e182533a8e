"""The doors for machines: what the executables in hooks/ run, one module per calling convention."""
