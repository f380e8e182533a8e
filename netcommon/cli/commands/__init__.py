"""Define the subcommands: one module for each, or for a few that belong together; each has ``COMMANDS``, by name."""
