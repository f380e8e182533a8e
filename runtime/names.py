"""Any text as the name of one file, or as a number of so many bits."""

from __future__ import annotations

import os

from runtime.typed import TYPE_CHECKING

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
    # '~' itself is always escaped, so no shorter key can come to the same name
    return f"{escaped[:100]}~{digest(escaped).hex()}"


def digest(text: str) -> bytes:
    """Give the SHA-256 of ``text`` (FIPS 180-4), 32 bytes."""
    if TYPE_CHECKING:
        from hashlib import sha256
    else:
        try:
            from _sha256 import sha256  # hashlib comes with OpenSSL's, which costs a hook 3 ms
        except ImportError:  # from Python 3.12 on
            try:
                from _sha2 import sha256
            except ImportError:
                from hashlib import sha256
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
