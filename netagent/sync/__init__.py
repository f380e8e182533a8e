"""The node's side of a registry: what it has is reported, and what is wanted of it is done (docs/registry.md)."""
