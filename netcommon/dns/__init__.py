"""DNS of instances: RFC 2136 updates of A, AAAA and PTR, signed (TSIG, RFC 8945), for Ganeti's hooks and `netcommon dns`."""
