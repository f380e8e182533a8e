"""Stand for what an agent has of a machine and a process: one module for each thing, and nothing else of a node is replaced."""
