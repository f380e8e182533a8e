"""What becomes of NICs that are up when the package is removed: they stay up, and somebody must undo them when their guests end.

    leave.py keep    prerm: where there are records, keeps what undoing them takes in /run/netcommon/leaving, and has systemd look
                     every ten minutes
    leave.py         the look: one `netcommon gc`; after the last NIC it removes itself, the timer, and /run/netcommon
    leave.py stay    postinst: the package is there again, and has the NICs as before

All of it lies in /run and goes with the boot, as the NICs do.
"""

import os
import shutil
import subprocess
import sys

STATE = "/run/netcommon"
KEPT = STATE + "/leaving"
TIMER = "netcommon-leaving"

#: What `netcommon gc` loads.
NEEDED = ("runtime", "netcommon", "hooks", "vendor/click", "vendor/jinja2", "vendor/markupsafe", "leave.py")


def main(arguments: list[str]) -> int:
    """The exit status."""
    if arguments == ["keep"]:
        return keep(os.path.dirname(os.path.realpath(__file__)))
    if arguments == ["stay"]:
        stop()
        shutil.rmtree(KEPT, ignore_errors=True)
        return 0
    return look()


def records() -> list[str]:
    """The records there are, those of other network namespaces too."""
    found = []
    for folder in (STATE, *(f"{STATE}/netns.d/{name}" for name in names(STATE + "/netns.d"))):
        found += [f"{folder}/nics/{name}" for name in names(folder + "/nics") if name.endswith(".json")]
    return found


def names(folder: str) -> list[str]:
    """What is in a folder; nothing where there is none."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def keep(library: str) -> int:
    """Keeps what is needed, and says so; nothing where no NIC is up."""
    count = len(records())
    if not count:
        return 0
    shutil.rmtree(KEPT, ignore_errors=True)
    for name in NEEDED:
        if os.path.isdir(f"{library}/{name}"):
            shutil.copytree(f"{library}/{name}", f"{KEPT}/{name}", symlinks=True)
        else:
            shutil.copy2(f"{library}/{name}", f"{KEPT}/{name}")
    look_now = ["/usr/bin/python3", "-IS", f"{KEPT}/leave.py"]
    timed = ["--on-active=10min", "--on-unit-inactive=10min", "--property=Type=oneshot", "--property=KillMode=process"]
    run = ["/usr/bin/systemd-run", "--quiet", f"--unit={TIMER}", "--description=Undo what leaving NICs need no more", *timed, *look_now]
    alone = os.path.isdir("/run/systemd/system") and subprocess.run(run, check=False).returncode == 0
    when = "is looked for every ten minutes" if alone else f"is undone by: {' '.join(look_now)}"
    print(f"netcommon: NICs that are up, and stay up: {count}. What they leave when their guests have ended {when}")
    return 0


def look() -> int:
    """One collection; after the last record there is nothing of us left."""
    sys.path[:0] = [KEPT, KEPT + "/vendor"]
    from netcommon.cli.group import netcommon

    status = 0
    try:
        netcommon.main(["gc"], prog_name="netcommon")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    if status == 0 and not records():
        shutil.rmtree(STATE, ignore_errors=True)
        stop()
    return status


def stop() -> None:
    """Ends the timer, where there is one."""
    if os.path.isdir("/run/systemd/system"):
        subprocess.run(["/usr/bin/systemctl", "--quiet", "stop", f"{TIMER}.timer"], stderr=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
