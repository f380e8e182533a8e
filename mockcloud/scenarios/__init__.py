"""Play scenarios: what is done to the instances of a mock cloud, and what goes wrong meanwhile, at which time and on which nodes."""
