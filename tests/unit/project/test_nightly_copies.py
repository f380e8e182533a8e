"""The copies that the how-tos have made every night are made every night, and no more of them are kept than is said."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.bootstrap import ROOT

#: Refuses what is there, as the real one does.
NETCOMMON = '#!/bin/sh\n[ "$1 $2" = "registry backup" ] && set -C && echo copy >"$3"\n'


@pytest.mark.parametrize("page", ["registry.md", "registry-etcd.md"])
def test_a_copy_is_made_every_night(tmp_path: Path, page: str) -> None:
    text = (Path(ROOT) / "docs/howto" / page).read_text()
    blocks = [block for part in text.split("\n## ") if "every night" in part for block in re.findall(r"```sh\n(.*?)```", part, re.DOTALL)]
    (command,) = re.findall(r"^netcommon registry backup (?:.*\\\n|.*&&\n)*.*\n", "\n".join(blocks), re.MULTILINE)
    copies, programs = tmp_path / "copies", tmp_path / "programs"
    for each in (copies, programs):
        each.mkdir()
    command = re.sub(r"/var/lib/netregistry|/root", str(copies), command)
    (programs / "netcommon").write_text(NETCOMMON)
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    for night in range(21):
        (programs / "date").write_text(f'#!/bin/sh\nexec /bin/date -d "2026-01-01 + {night} days" "$@"\n')
        for program in programs.iterdir():
            program.chmod(0o755)
        before = set(copies.iterdir())
        subprocess.run(["sh", "-e", "-c", command], check=True, env=environ)
        (new,) = set(copies.iterdir()) - before
        then = time.time() - (20 - night) * 86400 - 60  # as old as it will be in the end
        os.utime(new, (then, then))
    assert 14 <= len(list(copies.iterdir())) <= 16
