"""Read the settings of a node: the model, the file, its schema and its cache."""
