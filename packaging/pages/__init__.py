"""Makes what lies beside the program and must say what it says: man pages, completion, JSON Schemas. Needs a checkout."""
