"""Draw nodes and frames by seed, put them up, send the frames, and watch where they arrive: the other side of what trace says."""
