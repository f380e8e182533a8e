"""Give a simulated node a network namespace of the running kernel, which lives in this process alone, and goes with it."""
