"""Keep a registry's keys and values: one interface (netregistry.stores.base), one module for each engine."""
