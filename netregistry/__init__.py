"""Keep the registry of a cluster: which networks, NICs and addresses are wanted, and what each node has (docs/registry.md)."""
