"""Serve a registry by HTTP: a thin shell around the core, with nothing durable in it."""
