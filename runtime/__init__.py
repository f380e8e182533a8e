"""What this node knows of its NICs: model, validation, records, locks, and readers of the hypervisors' own files.

Knows nothing of netcommon: imports run downward only, and this is the bottom.
"""
