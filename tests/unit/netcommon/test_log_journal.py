"""The journal's native protocol (systemd.journal-fields(7), "Journal Native Protocol"): the NIC's names as fields; syslog without it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netcommon.log import LONGEST, PASSED, Journal, Log, Syslog


class Listener:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)

    def taken(self) -> list[bytes]:
        found = []
        while True:
            try:
                found.append(self.socket.recv(1 << 16))
            except BlockingIOError:
                return found

    def close(self) -> None:
        self.socket.close()
        self.path.unlink(missing_ok=True)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Listener]:
    made = Listener(tmp_path / "journal")
    yield made
    made.close()


@pytest.fixture
def syslog(tmp_path: Path) -> Iterator[Listener]:
    made = Listener(tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(Journal(str(tmp_path / "journal"), Syslog(str(tmp_path / "log"), "local2", lambda: 0.0)))
    yield made
    made.close()


def fields(entry: bytes) -> dict[str, str]:
    """A reader of the simple form of an entry: a field a line. No field twice."""
    assert entry.endswith(b"\n")
    pairs = [line.partition("=") for line in entry.decode()[:-1].split("\n")]
    assert all(sign == "=" and name.isascii() and name.replace("_", "A").isupper() for name, sign, _value in pairs)
    assert len({name for name, _sign, _value in pairs}) == len(pairs)
    return {name: value for name, _sign, value in pairs}


def test_the_nics_names_are_fields(journal: Listener, log: Log) -> None:
    log.bind("web 1", 0, "u-1", "tap0", door="kvm-ifup").warning("it drifts")
    (entry,) = journal.taken()
    assert fields(entry) == {
        "PRIORITY": "4",
        "SYSLOG_FACILITY": "18",
        "SYSLOG_IDENTIFIER": "netcommon",
        "SYSLOG_PID": str(os.getpid()),
        "INSTANCE": "web 1",
        "NIC_INDEX": "0",
        "NIC_UUID": "u-1",
        "TAP": "tap0",
        "MESSAGE": 'instance="web 1" nic=0 uuid=u-1 tap=tap0 door=kvm-ifup it drifts',
    }


def test_without_a_nic_no_fields(journal: Listener, log: Log) -> None:
    log.info("hello")
    assert set(fields(journal.taken()[0])) == {"PRIORITY", "SYSLOG_FACILITY", "SYSLOG_IDENTIFIER", "SYSLOG_PID", "MESSAGE"}


@given(st.text(), st.text(st.characters(exclude_categories=())))
def test_nobody_forges_a_field(tmp_path_factory: pytest.TempPathFactory, name: str, text: str) -> None:
    journal = Listener(tmp_path_factory.mktemp("j") / "s")
    log = Log(Journal(str(journal.path), Syslog("/nowhere/log")))
    log.bind(name, tap=text).error(text)
    (entry,) = journal.taken()
    assert set(fields(entry)) <= {
        *("PRIORITY", "SYSLOG_FACILITY", "SYSLOG_IDENTIFIER", "SYSLOG_PID", "MESSAGE", "INSTANCE", "TAP"),
    }
    log.close()
    journal.close()


def test_a_long_line_is_cut(journal: Listener, log: Log) -> None:
    log.info("\u00e4" * LONGEST)
    message = fields(journal.taken()[0])["MESSAGE"]
    assert message.endswith("...") and LONGEST - 4 <= len(message.encode()) <= LONGEST


def test_without_journald_syslog_gets_it_all(syslog: Listener, log: Log) -> None:
    log.bind("web1", 0, "u-1", "tap0").info("hello")
    (line,) = syslog.taken()
    assert line.startswith(b"<150>") and line.endswith(b"instance=web1 nic=0 uuid=u-1 tap=tap0 hello")


def test_a_journald_that_comes_is_found(tmp_path: Path, syslog: Listener, log: Log) -> None:
    """Not at each line: a hook shall not pay for its absence more than once."""
    log.info("0")
    journal = Listener(tmp_path / "journal")
    for number in range(PASSED):
        log.info(str(number + 1))
        assert journal.taken() == [] and len(syslog.taken()) > 0
    log.info("found")
    assert fields(journal.taken()[0])["MESSAGE"] == "found"
    journal.close()


def test_a_journald_that_was_restarted_loses_nothing(tmp_path: Path, syslog: Listener, log: Log) -> None:
    first = Listener(tmp_path / "journal")
    log.info("1")
    assert len(first.taken()) == 1
    first.close()
    second = Listener(tmp_path / "journal")
    log.info("2")
    assert [fields(entry)["MESSAGE"] for entry in second.taken()] == ["2"]
    assert syslog.taken() == []
    second.close()


def test_a_full_journal_is_not_waited_for(journal: Listener, syslog: Listener, log: Log) -> None:
    for number in range(200):
        log.info(str(number))
        syslog.taken()
    assert 0 < len(journal.taken()) < 200


def test_neither_is_counted() -> None:
    sender = Journal("/nowhere/journal", Syslog("/nowhere/log"))
    Log(sender).info("x")
    assert sender.dropped == 1
    sender.close()
