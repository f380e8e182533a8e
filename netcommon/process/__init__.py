"""Run programs that are not ours: with a limit of time, and end them with all that descends from them."""
