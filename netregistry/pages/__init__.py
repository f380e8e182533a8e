"""Show the registry to people: pages of HTML beside the API, to look at alone, which change as the registry does."""
