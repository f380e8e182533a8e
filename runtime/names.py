"""Any text as the name of one file."""

from __future__ import annotations

import os

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_:@+=,.")
_LONGEST = 200  #: bytes; a file name has 255


def file_name(key: str) -> str:
    """``key`` as one file name: other bytes than letters, digits and a few marks as %XX, as is a leading dot.

    Too long ones end in their SHA-256. Different keys give different names.
    """
    escaped = "".join(char if char in _PLAIN else "".join(f"%{byte:02X}" for byte in os.fsencode(char)) for char in key)
    if escaped.startswith("."):
        escaped = "%2E" + escaped[1:]
    if len(escaped) <= _LONGEST:
        return escaped or "%"
    import hashlib  # no key of ours is so long, so no hook pays for the import

    # '~' itself is always escaped, so no shorter key can come to the same name
    return f"{escaped[:100]}~{hashlib.sha256(escaped.encode()).hexdigest()}"
