"""Do to instances what an administrator does, and wait until the registry shows it; a log of each task."""
