"""What each NIC mode means: one module per mode, each with ``plan(nic, settings, options) -> list[Operation]``."""
