"""A stand-in for xenstore: a folder of values, and the two commands in a folder to be put on PATH, which answer from it and record.

Like the real ones: xenstore-read fails for what is not there, xenstore-write takes pairs, and a path without a leading "/" belongs to
domain 0.
"""

from __future__ import annotations

from pathlib import Path

FIND = 'case "$1" in /*) path="@store@$1" ;; *) path="@store@/local/domain/0/$1" ;; esac'
READ = f"""#!/bin/sh
[ "$#" = 1 ] || exit 2
printf 'read %s\\n' "$1" >>@store@/calls
{FIND}
[ -f "$path" ] && exec cat "$path"
echo "xenstore-read: couldn't read path $1" >&2
exit 1
"""
WRITE = f"""#!/bin/sh
[ "$#" -gt 0 ] && [ $(($# % 2)) = 0 ] || exit 2
while [ "$#" -gt 0 ]; do
    printf 'write %s %s\\n' "$1" "$2" >>@store@/calls
    {FIND}
    mkdir -p "${{path%/*}}" && printf '%s\\n' "$2" >"$path"
    shift 2
done
"""


class Store:
    """The store below ``root``, its commands in ``programs``."""

    def __init__(self, root: Path) -> None:
        self.values, self.programs = root / "xenstore", root / "bin"
        self.values.mkdir()
        self.programs.mkdir()
        for name, text in (("xenstore-read", READ), ("xenstore-write", WRITE)):
            self.command(name, text)

    def command(self, name: str, text: str) -> None:
        """Puts a command in place."""
        (self.programs / name).write_text(text.replace("@store@", str(self.values)))
        (self.programs / name).chmod(0o755)

    def file(self, path: str) -> Path:
        """Where the value of ``path`` lies."""
        return self.values / (path[1:] if path.startswith("/") else f"local/domain/0/{path}")

    def put(self, path: str, value: str) -> None:
        """Sets a value without a call."""
        self.file(path).parent.mkdir(parents=True, exist_ok=True)
        self.file(path).write_text(value + "\n")

    def get(self, path: str) -> str:
        """A value, "" where there is none."""
        return self.file(path).read_text().strip() if self.file(path).exists() else ""

    def written(self) -> list[str]:
        """What was written by the commands since the last time, "path value" each."""
        return [line.removeprefix("write ") for line in self.calls() if line.startswith("write ")]

    def calls(self) -> list[str]:
        """Every call of the commands since the last time."""
        path = self.values / "calls"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def domain(self, number: int, name: str, *macs: str, stub_of: int = 0) -> None:
        """A domain with a network device for each of ``macs``, as libxl writes it."""
        self.put(f"/local/domain/{number}/name", name)
        if stub_of:
            self.put(f"/local/domain/{number}/target", str(stub_of))
        for devid, mac in enumerate(macs):
            self.put(f"backend/vif/{number}/{devid}/mac", mac)
            self.put(f"backend/vif/{number}/{devid}/hotplug-status", "")
