"""Draw the node: one model, as a tree, as SVG and for Graphviz."""
