"""Plan each NIC mode: one module per mode, each with ``plan(nic, settings, options) -> list[Operation]``."""
