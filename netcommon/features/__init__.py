"""Plan what is added to any mode: one module per feature, each with ``plan(nic, settings, options) -> Part``."""
