"""Make keys and certificates: the authority's, a service's, and those of whoever joins. Only this needs a library for it."""
