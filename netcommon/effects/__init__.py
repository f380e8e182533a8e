"""Tell the network and daemons of a NIC that comes or goes: one module per effect (netcommon.effects.base)."""
