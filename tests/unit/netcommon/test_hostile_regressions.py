"""Faults that the fault suite has found in what reads hostile things, one small test each."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from pathlib import Path
from struct import pack

import pytest

from netcommon.host.nftables import decode as nfdecode
from netcommon.host.rtnetlink import decode, encode_tc
from netcommon.host.rtnetlink.attributes import MalformedError
from netcommon.host.rtnetlink.socket import Netlink, reply_of
from netcommon.process import run as runner
from netcommon.settings import parse as settings_file
from runtime.errors import NicInvalid, RecordUnreadable, SettingsInvalid, TryAgain, escaped
from runtime.folder import Folder
from runtime.ganeti import MOST_NICS, parse_runtime
from runtime.record import from_json, to_json
from runtime.validate import interface
from tests.support.netns import wait_until
from tests.support.nics import record


def test_a_device_is_no_option() -> None:
    with pytest.raises(NicInvalid):
        interface("-rf")


@pytest.mark.parametrize("text", [b'"X":"\\ud800",', b'"X":"a\\u0000",', b'"A=B":"",', b'"":"",', b'"X":"1","X":"2",'])
def test_a_record_with_an_environment_that_no_process_can_have(text: bytes) -> None:
    with pytest.raises(RecordUnreadable):
        from_json(to_json(record()).replace(b'"environment":{', b'"environment":{' + text))


def test_a_runtime_file_with_a_million_nics() -> None:
    assert parse_runtime(b"[[],[" + b"{}," * MOST_NICS + b"{}],{}]", "web1").nics == ()


DECODERS = (nfdecode.table, nfdecode.chain, nfdecode.rule, encode_tc.qdisc, lambda body: encode_tc.filters([body], True))


@pytest.mark.parametrize("decoder", DECODERS)
def test_an_empty_message(decoder: object) -> None:
    with pytest.raises(MalformedError):
        decoder(b"")  # type: ignore[operator]


def test_a_message_of_sixty_thousand_vlans() -> None:
    info = pack("=HHHH", 8, 1, 0, 1) + pack("=HHHxx", 6, 2, 0xFFFF)
    with pytest.raises(MalformedError):
        list(decode.vlans(pack("=BxxxI", 7, 3) + pack("=HH", 4 + len(info), 0x8001) + info))


def test_an_acknowledgement_with_no_error_number() -> None:
    with pytest.raises(TryAgain):
        reply_of(0, pack("=i", -(1 << 31)) + bytes(16))


def test_the_kernel_s_words_are_shown_safely() -> None:
    assert reply_of(0x200, pack("=i", -1) + bytes(16) + pack("=HH", 8, 1) + b"\x1b[2J").text.isprintable()


def test_who_cannot_ask_for_the_namespace_does_not_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inode in its place would be another layout of the state directory."""

    def refuse(*_: object) -> None:
        raise OSError(24, "Too many open files")

    netlink = Netlink(1)
    monkeypatch.setattr(netlink, "_open", refuse)
    with pytest.raises(TryAgain):
        netlink.cookie()


@pytest.mark.parametrize("text", [".".join(["a"] * 3000) + " = 1", "[" + ".".join(["a"] * 3000) + "]"])
def test_settings_nested_by_dots(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(SettingsInvalid):
        settings_file.read(os.open(path, os.O_RDONLY), str(path))


def test_a_value_over_many_lines_costs_no_square(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[hook]\nx = """' + "\n" * 100_000 + '"""\n')
    begun = time.process_time()
    with pytest.raises(SettingsInvalid):
        settings_file.read(os.open(path, os.O_RDONLY), str(path))
    assert time.process_time() - begun < 5


def test_a_plain_text_is_escaped_as_it_was() -> None:
    assert [escaped(text) for text in ("a", "it's", "a\\b", "\n", "\u00e9")] == ["'a'", "'it\\'s'", "'a\\\\b'", "'\\n'", "'\\xe9'"]


def test_a_file_of_the_beginning_of_time_exists(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.utime(tmp_path / "file", (0, 0))
    with Folder.make(str(tmp_path)) as folder:
        assert folder.exists("file") and not folder.exists("other")


@pytest.mark.parametrize("marked", [True, False])
def test_an_orphan_in_a_session_of_its_own_is_found_by_its_mark(tmp_path: Path, marked: bool) -> None:
    """One without the mark is not: nothing ties it to the program any more."""
    text = f"(setsid sh -c 'echo $$ >{tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 1009' &) & sleep 1009"
    environment = {b"PATH": b"/usr/bin:/bin", **({runner.MARK: str(tmp_path).encode()} if marked else {})}
    assert runner.run(["/bin/sh", "-c", text], environment, 1.5, 100, time.monotonic).timed_out
    pid = int((tmp_path / "pid").read_text())
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        state = "Z"
    if not marked:
        os.kill(pid, signal.SIGKILL)
    assert (state == "Z") == marked


def test_orphans_are_ended_though_few_files_can_be_open(tmp_path: Path) -> None:
    """More of them than a process may hold open: those that were not held are looked for again when the others have been let go."""
    text = "for number in $(seq 60); do (setsid sleep 1013 &); done; sleep 1013"
    environment = {b"PATH": b"/usr/bin:/bin", runner.MARK: str(tmp_path).encode()}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 30, hard))
    held = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(20):
            os.close(held.pop())
        assert runner.run(["/bin/sh", "-c", text], environment, 1.5, 100, time.monotonic).timed_out
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_until(lambda: not sleeping(b"1013"), 1, "they run on")


def sleeping(argument: bytes) -> list[int]:
    """The processes with this argument that are no zombies."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if argument in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                found.append(int(name))
    return found
