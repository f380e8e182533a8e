"""What people look at: the node as a tree and as a picture, a NIC explained. A model made of records and one snapshot, and renderers.

The renderers are pure functions of the model. Hooks never load any of this.
"""
