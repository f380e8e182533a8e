"""Make keys and certificates: the authority's, a service's, and those of whoever joins. Only this needs a library for it."""

from __future__ import annotations

LIBRARY = "cryptography"
GET_IT = "apt install python3-cryptography, or pip install netcommon[registry]"
