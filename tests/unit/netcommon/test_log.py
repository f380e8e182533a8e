"""The log: one datagram a line, never waiting, nothing forged, nothing on stdout."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from netcommon import log as log_module
from netcommon.log import Log, Syslog, recording


@pytest.fixture
def server(tmp_path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    made.bind(str(tmp_path / "log"))
    return made


def test_a_line_is_an_rfc_3164_datagram(server: socket.socket) -> None:
    with server:
        log = Log(Syslog(server.getsockname(), wall=lambda: time.mktime((2026, 3, 5, 4, 6, 7, 0, 0, -1))))
        log.info("port added")
        log.warning("slow")
        log.error("gone")
        log.close()
        lines = [server.recv(9000).decode() for _ in range(3)]
    assert lines[0] == f"<30>Mar  5 04:06:07 netcommon[{os.getpid()}]: port added"
    assert [line[:4] for line in lines] == ["<30>", "<28>", "<27>"]


def test_the_facility_can_change(server: socket.socket) -> None:
    with server:
        sender = Syslog(server.getsockname())
        log = Log(sender).bind(instance="a")
        log.info("x")
        sender.facility = "local7"
        log.info("x")
        log.close()
        assert [server.recv(9000).partition(b">")[0] for _ in range(2)] == [b"<30", b"<190"]


def test_the_facility_is_chosen(server: socket.socket) -> None:
    with server:
        log = Log(Syslog(server.getsockname(), facility="local1"))
        log.info("x")
        log.close()
        assert server.recv(100).startswith(b"<142>")


def test_fields_are_bound_in_order_and_empty_ones_left_out() -> None:
    log, lines = recording()
    log.bind(instance="web1", nic=0, uuid="u-1", tap="tap0").info("up")
    log.bind(tap="tap1", phase="post").info("up")
    log.info("bare")
    assert lines == ["info: instance=web1 nic=0 uuid=u-1 tap=tap0 up", "info: tap=tap1 phase=post up", "info: bare"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a b", '"a b"'),
        ("a nic=7", '"a nic=7"'),
        ('a"b', '"a\\"b"'),
        ("a\\", '"a\\\\"'),
        ("a\nb", '"a\\\\nb"'),
        ("", '""'),
        ("ä", "ä"),
    ],
)
def test_a_value_cannot_be_taken_for_two(value: str, shown: str) -> None:
    assert log_module.field("name", value) == f"name={shown}"


@pytest.mark.parametrize("evil", ["a\nb", "a\rb", "a\x00b", "a\x1b[31mb", "a\u2028b", "a\x85b", "a\udc80b", "a\u202eb", "\t"])
def test_no_character_starts_a_new_line_or_a_colour(server: socket.socket, evil: str) -> None:
    with server:
        log = Log(Syslog(server.getsockname())).bind(instance=evil)
        log.error(evil)
        log.close()
        line = server.recv(9000).decode()
    assert line.isprintable()
    assert log.summary().endswith("\n")
    assert log.summary()[:-1].isprintable()


def test_a_full_log_costs_no_time_and_is_counted(server: socket.socket) -> None:
    with server:
        log = Log(Syslog(server.getsockname()))
        start = time.monotonic()
        for _ in range(2000):
            log.info("x" * 1000)
        log.error("broken")
        assert time.monotonic() - start < 2
        log.close()
    assert log.summary() == "netcommon: error: broken\n"


def test_no_log_at_all_is_counted(tmp_path: Path) -> None:
    sender = Syslog(str(tmp_path / "none"))
    log = Log(sender)
    log.info("one")
    log.info("two")
    assert sender.dropped == 2
    assert log.summary() == ""
    sender.close()


def test_a_restarted_log_daemon_is_found_again(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    sender = Syslog(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as first:
        first.bind(path)
        sender.send(6, "one")
    os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as second:
        second.bind(path)
        sender.send(6, "two")
        assert second.recv(100).endswith(b"two")
    sender.close()
    assert sender.dropped == 0


def test_a_long_line_is_cut_at_a_whole_character(server: socket.socket) -> None:
    with server:
        log = Log(Syslog(server.getsockname()))
        log.info("ä" * 10000)
        log.close()
        line = server.recv(20000)
    assert log_module.LONGEST - 1 <= len(line) <= log_module.LONGEST
    assert line.decode().endswith("ä...")


def test_the_summary_names_the_nic_and_each_problem_once(capfd: pytest.CaptureFixture[str]) -> None:
    log, _ = recording()
    nic = log.bind(instance="web1", nic=2, uuid="u", tap="tap0")
    nic.info("fine")
    nic.warning("slow")
    nic.error("broken")
    nic.error("broken")
    log.bind(tap="tap9").error("gone")
    log.error("all is lost")
    assert log.summary() == (
        "netcommon: warning: web1/2: slow\nnetcommon: error: web1/2: broken\nnetcommon: error: tap9: gone\nnetcommon: error: all is lost\n"
    )
    assert log.errors == 4
    assert capfd.readouterr() == ("", "")


def test_a_flood_of_problems_is_cut() -> None:
    log, _ = recording()
    for number in range(1000):
        log.error(f"problem {number}")
    assert len(log.summary().splitlines()) == log_module.KEPT + 1
    assert log.summary().endswith(f"netcommon: {1000 - log_module.KEPT} more\n")
