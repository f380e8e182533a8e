"""Run the real agents of many simulated nodes in one process and one thread, by a virtual clock."""
