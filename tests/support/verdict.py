"""What the commands say of one NIC: check, explain and tree must say the same."""

from __future__ import annotations

import json
import subprocess

from tests.support.bootstrap import VENV

PROGRAM = str(VENV / "bin/netcommon")


def lost(device: str = "tap0") -> list[tuple[str, str]]:
    """Ask check, whose status must say the same, why the NIC's traffic does not pass though all of it holds, and what helps."""
    done = subprocess.run([PROGRAM, "check", "--json", device], capture_output=True, text=True, check=False)
    (row,) = json.loads(done.stdout)["nics"]
    assert done.returncode == (0 if row["good"] else 1), done
    found = [(each["why"], each["remedy"]) for each in row["dropped"]]
    assert row["good"] == (not (found or row["drift"] or row["unknown"])), row
    explained = subprocess.run([PROGRAM, "explain", "--json", device], capture_output=True, text=True, check=False)
    assert json.loads(explained.stdout)["nics"][0]["dropped"] == [why for why, _remedy in found]
    tree = subprocess.run([PROGRAM, "tree"], capture_output=True, text=True, check=False)
    assert all(why in tree.stdout for why, _remedy in found), tree.stdout
    return found


def idle(device: str = "tap0") -> list[str]:
    """Ask check what has no effect, which is no fault."""
    done = subprocess.run([PROGRAM, "check", "--json", device], capture_output=True, text=True, check=False)
    return [each["why"] for each in json.loads(done.stdout)["nics"][0]["idle"]]


def remedied(remedy: str) -> None:
    """Do what a remedy says: its first command, up to what is said of it."""
    command = remedy.partition(", and")[0].partition(" (")[0].partition(";")[0]
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done)
