"""One module per subcommand, or for a few that belong together; each has ``COMMANDS``, by name."""
