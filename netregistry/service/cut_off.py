"""Tell who is cut off: a machine without power, or behind a cable that is out, says no farewell. The kernel knows (tcp(7), RFC 5482).

What is sent to it waits to be acknowledged, by default for a quarter of an hour, and a connection on which nothing is sent lasts for ever.
Who is there and does not read is not cut off: its kernel answers.
"""

from __future__ import annotations

import socket
from typing import Any

LASTING = 30.0  #: seconds that a connection lasts on which nothing is acknowledged, or nothing taken
IDLE, BETWEEN = 15, 5  #: seconds without a packet after which the other side is asked whether it is there, and between two such questions
UNANSWERED = 4  #: times that something was sent again, some three seconds, after which nobody seems to be there
HEAD = 4  #: bytes of struct tcp_info (linux/tcp.h): state, congestion state, retransmissions and probes that nothing has answered


def limit(connection: socket.socket) -> None:
    """Let a TCP connection end by itself where the other side is cut off."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, BETWEEN)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(LASTING * 1000))  # which is the limit of such questions too


def silent(connection: Any) -> bool:
    """Tell whether the other side of a TCP connection answers nothing that it is sent; also of one that has ended. For any thread."""
    try:
        _state, _congestion, again, probes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, HEAD)
    except OSError:
        return True
    return bool(max(again, probes) >= UNANSWERED)
