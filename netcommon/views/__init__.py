"""Show people the node as a tree and as a picture, a NIC explained, and what is going on.

Each view is a model made of records and one snapshot, and renderers, which are pure functions of the model. Hooks never load any of this.
"""
