"""Hold what a node knows of its NICs: model, validation, records and locks; read hypervisors' files.

Knows nothing of netcommon: imports run downward only, and this is the bottom.
"""
