"""What is done besides operations when a NIC comes or goes: one module per effect (netcommon.effects.base says what one is)."""
