"""``python -m tests.golden``: writes the plans anew, and names those that changed."""

from __future__ import annotations

from tests.golden import update

for name in update():
    print(name)
