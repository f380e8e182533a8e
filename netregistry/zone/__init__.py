"""Publish the names of a registry's underlay: a zone of the DNS is kept as the registry has it, at each of its servers."""
