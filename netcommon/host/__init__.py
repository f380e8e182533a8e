"""The only code that touches the machine: one narrow interface (base), two backends (linux, memory)."""
