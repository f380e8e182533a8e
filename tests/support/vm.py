"""Runs the tests marked vm in a Debian kernel: virtme-ng boots it under QEMU's plain emulation, with the machine's files as its own.

One boot, one pytest process: Python is 10 to 35 times slower in there. The checkout and the environment travel as one archive and are
unpacked in memory, at the same place as outside: read one by one through 9p, importing pytest alone takes ten seconds. For the same
reason the guest has /usr a second time, from a mount that keeps in memory what has been read: virtme-ng's own asks the host again for each
file that a process maps. Which files have tests for the machine is found out outside, which leaves them compiled as well: to import all
tests of the kernel took minutes in there. Neither standard output nor the exit status of the guest can be relied on (they need udev), so
results come back as files.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.support import bootstrap, figures, junit
from tests.support.bootstrap import ROOT, VENV, say

#: Of .venv, what nobody needs in there.
HEAVY = ("mypy", "mypyc", "pip", "setuptools", "pkg_resources", "virtme", "virtme_ng", "urllib3", "requests", "ast_serialize")
FOLDERS = ("hooks", "mockcloud", "netagent", "netcommon", "netregistry", "runtime", "tests", "examples", "docs")
PRODUCT = ("runtime", "netcommon", "netagent", "netregistry", "mockcloud")
WITH_CASES = ("tests/vm", "tests/contract", "tests/kernel", "tests/fault")
#: What the emulation would pay for and no test needs: AVX's registers at each change of process, five levels of page tables, SMAP, keys.
CPU = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt"
#: Nobody attacks this kernel by its caches; its clock is the processor's and no device's; the end of a namespace waits for no tick.
KERNEL = ("mitigations=off", "tsc=reliable", "rcupdate.rcu_expedited=1")
USR = "hostusr"  #: the tag of /usr
MODULES = ("bridge", "tun", "veth", "openvswitch", "8021q", "bonding", "dummy", "vrf", "vxlan", "nf_tables")

SCRIPT = """#!/bin/sh
exec >{results}/output.txt 2>&1
export HOME=/root LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export NETCOMMON_CACHE={root}/.cache
export PYTHONDONTWRITEBYTECODE=1 NETCOMMON_TESTS_SLOWNESS=10 NETCOMMON_TESTS_PRIVATE=machine NETCOMMON_TESTS_FULL={full}
export {figures}={noted}
mkdir -p /run/usr/host /run/usr/upper /run/usr/work /run/usr/modules
mount --rbind /lib/modules /run/usr/modules
mount -t 9p -o ro,version=9p2000.L,trans=virtio,cache=loose,msize=524288 {usr} /run/usr/host
mount -t overlay -o lowerdir=/run/usr/host,upperdir=/run/usr/upper,workdir=/run/usr/work usr /usr
mkdir -p /usr/lib/modules && mount --rbind /run/usr/modules /usr/lib/modules
touch /etc/ld.so.cache  # into the overlay's memory: each program reads it
mount -t tmpfs tmpfs /tmp
mkdir -p {root} && mount -t tmpfs tmpfs {root}
tar -xf {results}/tree.tar -C {root}
modprobe -a {modules}
cd {root}
cut -d' ' -f1 /proc/uptime >{results}/booted
{pytest}
echo $? >{results}/status
sync
"""


def boot(expression: str, extra: list[str], environment: Mapping[str, str], seconds: int) -> tuple[junit.Counts, int]:
    """Runs ``pytest -m expression`` in the machine; returns its counts and exit status. Raises SetupFailed."""
    kernel = bootstrap.kernel("amd64")
    with (bootstrap.cache() / "vm.lock").open("w") as lock:  # one machine at a time, also of another checkout
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _boot(kernel, expression, extra, environment, seconds)


def _boot(
    kernel: bootstrap.Kernel, expression: str, extra: list[str], environment: Mapping[str, str], seconds: int
) -> tuple[junit.Counts, int]:
    results = bootstrap.cache() / "vm"
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir()
    chosen = files(expression, extra, environment)
    pack(results / "tree.tar")
    script = results / "guest.sh"
    script.write_text(guest_script(results, expression, chosen, extra, environment))
    argv = [
        *[str(VENV / "bin/vng"), "--verbose", "--disable-microvm", "--disable-kvm", "--memory", "2G", "--cpus", "2"],
        *["--qemu", "/usr/bin/qemu-system-x86_64", "--rwdir", str(results), "--rodir", str(kernel.tree)],
        f"--qemu-opts=-cpu {CPU} -virtfs local,path=/usr,mount_tag={USR},security_model=none,readonly=on,multidevs=remap",
        *(word for option in KERNEL for word in ("--append", option)),
        *["--run", str(kernel.image), "--exec", f"sh {shlex.quote(str(script))}"],
    ]
    say(f"booting Linux {kernel.version}")
    status = _run(argv, results, seconds)
    if not (results / "booted").exists():
        say("the machine did not come up; its console:")
        lines = [line for line in (results / "console.txt").read_text(errors="replace").splitlines() if line.strip()]
        print("\n".join(lines[-40:]))
    if (results / "figures").exists():
        shutil.copytree(results / "figures", environment[figures.VARIABLE], dirs_exist_ok=True)
    return junit.read(results / "vm.xml"), status


def files(expression: str, extra: list[str], environment: Mapping[str, str]) -> list[str]:
    """List the files that have tests for the machine, none where ``extra`` names them; compile them and the product on the way.

    Where they cannot be collected, it is all folders: the machine's own pytest says why.
    """
    python = str(VENV / "bin/python")
    subprocess.run([python, "-m", "compileall", "-q", *PRODUCT], cwd=ROOT, env=environment, check=False)
    if any((ROOT / argument.split("::")[0]).exists() for argument in extra):
        return []
    folders = [folder for folder in WITH_CASES if any((ROOT / folder).rglob("test_*.py"))]
    argv = [python, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-m", expression, *folders, *extra]
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    named = dict.fromkeys(line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line)
    return folders if done.returncode else list(named)


def guest_script(results: Path, expression: str, chosen: list[str], extra: list[str], environment: Mapping[str, str]) -> str:
    """The commands for the machine; ``chosen`` are the files or folders of its tests."""
    argv = [str(VENV / "bin/python"), "-m", "pytest", "-v", "--color=no", "-p", "no:cacheprovider", "-p", "no:pyfakefs"]
    argv += [f"--junitxml={results}/vm.xml", "--durations=25", "-m", expression, *chosen, *extra]
    full = shlex.quote(environment.get("NETCOMMON_TESTS_FULL", "0"))
    places = {"root": shlex.quote(str(ROOT)), "results": shlex.quote(str(results))}
    noting = {"figures": figures.VARIABLE, "noted": shlex.quote(f"{results}/figures" if environment.get(figures.VARIABLE) else "")}
    return SCRIPT.format(**places, **noting, full=full, usr=USR, modules=" ".join(MODULES), pytest=shlex.join(argv))


def pack(target: Path) -> None:
    """The checkout with its environment, less what is heavy and unused; and the packages that tests look into, as its cache."""
    packages = next((VENV / "lib").glob("python3*/site-packages"))
    with tarfile.open(target, "w") as archive:
        for name in (*FOLDERS, "pyproject.toml"):
            if (ROOT / name).exists():
                archive.add(ROOT / name, name)
        for package in bootstrap.UNPACKED["vm"]:
            archive.add(bootstrap.unpacked(package), f".cache/packages/{package}")
        for path in (VENV / "pyvenv.cfg", VENV / "bin/python", VENV / "bin/python3", VENV / "bin/netcommon"):
            archive.add(path, str(path.relative_to(ROOT)))
        for path in sorted(packages.iterdir()):
            if path.name.split("-")[0] not in HEAVY and not path.name.endswith("__mypyc.cpython-311-x86_64-linux-gnu.so"):
                archive.add(path, str(path.relative_to(ROOT)))


def _run(argv: list[str], results: Path, seconds: int) -> int:
    """Runs virtme-ng on a terminal of its own (it wants one), printing what the tests say; pytest's exit status, 124 on a time-out."""
    console = results / "console.txt"
    done = threading.Event()
    path = f"{VENV}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with console.open("wb") as log:
        vng = subprocess.Popen(
            ["script", "-qec", shlex.join(argv), "/dev/null"],
            cwd="/",
            env={**os.environ, "PATH": path, "TERM": "dumb"},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        reader = threading.Thread(target=_follow, args=(results / "output.txt", done), daemon=True)
        reader.start()
        try:
            vng.wait(seconds)
        except subprocess.TimeoutExpired:
            say(f"the machine is not finished after {seconds} s: ending it")
        finally:
            _end(vng)
            done.set()
            reader.join()
    status = results / "status"
    return int(status.read_text()) if status.exists() else 124


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and everything that it started: script(1) puts its child into a session of its own."""
    descendants = [process.pid]
    for parent in descendants:
        try:
            tasks = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            continue
        descendants += [int(task) for task in tasks]
    for pid in descendants:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def _follow(path: Path, done: threading.Event) -> None:
    """Prints a growing file line by line."""
    position = 0
    while True:
        finished = done.wait(0.5)
        if path.exists():
            with path.open("rb") as file:
                file.seek(position)
                text = file.read()
            whole = text if finished else text[: text.rfind(b"\n") + 1]
            position += len(whole)
            print(whole.decode(errors="replace"), end="", flush=True)
        if finished:
            return
