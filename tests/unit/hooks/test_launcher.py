"""hooks/launcher agrees with the agent that it speaks to and with the doors beside it, and is installed where there is Perl."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from netagent.hooks.protocol import DOORS, LARGEST, LONGEST_ANSWER, PROTOCOL
from netagent.hooks.server import SOCKET
from netcommon.install.targets import _door
from netcommon.scripts.door_files import is_door
from runtime.paths import Paths
from tests.support.bootstrap import ROOT

HOOKS = ROOT / "hooks"
TEXT = (HOOKS / "launcher").read_text()
LINKS = [path for path in sorted(HOOKS.iterdir()) if path.is_symlink()]


def test_it_speaks_of_the_same_things() -> None:
    assert f'"{Paths().state}/agent/{SOCKET}$namespace\\0"' in TEXT and f"'{PROTOCOL}'" in TEXT
    shift = re.search(r"\$LARGEST\s+= 1 << (\d+)", TEXT)
    assert shift and 1 << int(shift[1]) == LARGEST
    assert "recv($agent, my $message, 1 << 16, 0)" in TEXT and LONGEST_ANSWER == 1 << 16


def test_it_loads_no_module_and_runs_nothing_but_a_door() -> None:
    code = [line.partition("#")[0] for line in TEXT.splitlines()[1:]]
    assert TEXT.startswith("#!/usr/bin/perl -TUX\n")
    assert not [line for line in code if re.search(r"\b(use|require|do|system|qx)\b|`", line)]
    assert [line.strip() for line in code if "exec" in line] == ["exec { $cold } $cold, @ARGV;"]


def test_each_name_has_a_door_that_does_the_work_itself() -> None:
    assert [path.name for path in LINKS] == ["kvm-ifdown", "kvm-ifup", "kvm-nic-setup"]
    assert all(path.resolve() == HOOKS / "launcher" for path in LINKS)
    assert sorted(path.name for path in (HOOKS / "cold").iterdir()) == sorted(DOORS)
    for path in (HOOKS / "launcher", *(HOOKS / "cold").iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755, path


@pytest.mark.parametrize("name", ["kvm-ifup", "cold/kvm-ifup", "cold/up"])
def test_the_doors_of_either_sort_are_ours(tmp_path: Path, name: str) -> None:
    """A site's script of such a name would else be run for each NIC."""
    (tmp_path / "link").symlink_to(HOOKS / name)
    (tmp_path / "wrapper").write_text(f'#!/bin/sh\nexec {HOOKS}/{name} "$@"\n')
    (tmp_path / "copy").write_bytes((HOOKS / name).read_bytes())
    assert all(is_door(str(tmp_path / kind), str(HOOKS)) for kind in ("link", "wrapper", "copy"))


LOCALES = {"unknown": {"LC_ALL": "xx_YY.UTF-8"}, "silenced": {"LC_ALL": "xx_YY.UTF-8", "PERL_BADLANG": "0"}, "C": {"LC_ALL": "C"}}


@pytest.mark.parametrize("locale", LOCALES)
def test_an_unknown_locale_of_the_caller(tmp_path: Path, locale: str) -> None:
    """The door does the work with the caller's environment; what Perl says of the locale has the remedies that docs/agent.md names."""
    (tmp_path / "launcher").write_text(TEXT)
    (tmp_path / "launcher").chmod(0o755)
    (tmp_path / "kvm-ifup").symlink_to("launcher")
    (tmp_path / "cold").mkdir()
    door = tmp_path / "cold/kvm-ifup"
    door.write_text('#!/bin/sh\nprintf "%s %s" "$LC_ALL" "$1"; echo done >&2; exit 7\n')
    door.chmod(0o755)
    done = subprocess.run([tmp_path / "kvm-ifup", "tap0"], env=LOCALES[locale], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, f"{LOCALES[locale]['LC_ALL']} tap0")
    said = done.stderr.removesuffix("done\n")
    assert all(line.startswith(("perl: warning:", "\t", "    ")) for line in said.splitlines()) and bool(said) == (locale == "unknown")


def test_a_node_without_perl_gets_the_doors_that_do_without_the_agent(tmp_path: Path) -> None:
    perl = tmp_path / "perl"
    assert _door(str(HOOKS), "kvm-ifup", str(perl)) == f"{HOOKS}/cold/kvm-ifup"
    assert _door(str(HOOKS), "ganeti-hook", str(perl)) == f"{HOOKS}/ganeti-hook"
    perl.touch(0o755)
    assert _door(str(HOOKS), "kvm-ifup", str(perl)) == f"{HOOKS}/kvm-ifup"
    assert os.access(_door(str(HOOKS), "kvm-nic-setup"), os.X_OK)
