"""Update instances' A, AAAA and PTR in the DNS (RFC 2136), signed (TSIG, RFC 8945). Ganeti's hooks and ``netcommon dns`` do."""
