"""Plan a NIC: turn its description and the settings into operations."""
