"""``python -m mockcloud`` is the command line."""

from __future__ import annotations

from mockcloud.cli import main

if __name__ == "__main__":
    main()
