"""examples/cluster and examples/cluster registry tell their stories to the end, each of their promises is kept, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.clusterlib.story import play
from tests.support.bootstrap import ROOT
from tests.support.netns import slowness, wait_until

PNG = b"\x89PNG\r\n\x1a\n"
#: Seconds until all is told; until what a signal has ended is gone.
TOLD, GONE = 300, 30
REGISTRY = str(ROOT / "examples/cluster")


@pytest.mark.no_agent("a registry needs none")
def test_the_cluster_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(ROOT, tmp_path)
    said = capsys.readouterr().out
    assert said.count("  ok  ") == 7 and "FAILED" not in said


def given(folder: Path) -> dict[str, str]:
    """Give an environment by which what the example starts is known, and what it leaves is seen."""
    temporary = folder / "temporary"
    temporary.mkdir()
    return {**os.environ, "TMPDIR": str(temporary)}


def processes() -> Iterator[tuple[str, str]]:
    """Give the namespace of processes, and the command, of each process that runs."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone
            yield os.readlink(process / "ns/pid"), (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def namespace_of(picture: Path) -> str:
    """Give the namespace of all processes of the example that is to write a picture."""
    (found,) = {space for space, said in processes() if str(picture) in said} - {os.readlink("/proc/self/ns/pid")}
    return found


@pytest.mark.slow
@pytest.mark.no_agent("it has machines and an agent of its own")
def test_a_registry_moves_to_an_etcd(tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    done = subprocess.run(
        [REGISTRY, "registry", str(picture)], env=given(tmp_path), capture_output=True, text=True, check=False, timeout=TOLD * slowness()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # the seven of the first story, and then: seen, reached, three members; two answer alike, another epoch, two changes;
    # a leader, two answer alike, a change, the member back; a change, alike; the page
    assert done.stdout.count("  ok  ") == 7 + 3 + 5 + 5 + 2 + 1 and "FAILED" not in done.stdout
    assert done.stdout.splitlines()[-1] == f"  the page's picture: {picture}"
    assert picture.read_bytes().startswith(PNG) and picture.stat().st_size > 10_000
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.no_agent("it has machines and an agent of its own")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """While etcd's members run, with services and an agent."""
    child = subprocess.Popen([REGISTRY, "registry", str(tmp_path / "page.png")], env=given(tmp_path), stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        assert any("all three members know a leader" in said for said in child.stdout)
        space = namespace_of(tmp_path / "page.png")
        assert sum("etcd --name node" in said for each, said in processes() if each == space) == 3
        child.send_signal(number)
        assert child.wait(GONE * slowness()) == 128 + signal.SIGKILL
    finally:
        child.kill()
        child.stdout.close()
    wait_until(lambda: space not in {each for each, _said in processes()}, GONE, "all processes are gone")
    assert list((tmp_path / "temporary").iterdir()) == [] and not (tmp_path / "page.png").exists()
