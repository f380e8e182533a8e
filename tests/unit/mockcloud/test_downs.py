"""Hooks that fail on the way down stop nothing: the command says so, and what is on disk is what there is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mockcloud.cloud import MockCloud
from mockcloud.hypervisor import HookFailed
from mockcloud.instances.tasks import Instances
from mockcloud.invariants import always
from mockcloud.invariants import fitting as wrong
from mockcloud.sysinfo import NEW, OLD, node_uuid
from tests.support.instance_history import PAIR, prepare

FIRST, SECOND = node_uuid(1), node_uuid(2)

Work = Callable[[Instances], object]
#: The task, with the version of Ganeti that calls a down in it, and how many NICs the instance has then.
TASKS: dict[str, tuple[str, Work, str, int]] = {
    "stop": (NEW, lambda i: i.stop("web1"), "stopped", 2),
    "stop, kvm-ifdown": (OLD, lambda i: i.stop("web1", ifdown=True), "stopped", 2),
    "reboot": (NEW, lambda i: i.reboot("web1"), "stopped", 2),
    "failover": (NEW, lambda i: i.failover("web1", SECOND), "stopped", 2),
    "delete": (NEW, lambda i: i.delete("web1"), "stopped", 2),
    "unplug, kvm-ifdown": (OLD, lambda i: i.unplug("web1", 0, ifdown=True), "running", 1),
}


@pytest.mark.parametrize("task", TASKS)
def test_what_is_on_disk_is_what_there_is(tmp_path: Path, task: str) -> None:
    version, work, state, nics = TASKS[task]
    cloud = MockCloud(str(tmp_path / "cloud"), ganeti=version)
    try:
        prepare(cloud, 2)
        instances = Instances(cloud)
        instances.create("web1", FIRST, PAIR)
        instances.start("web1")
        cloud.ready([SECOND], 5.0)
        settings = Path(cloud.root, "servers", FIRST, "etc/netcommon/config.toml")
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("nonsense")
        with pytest.raises(HookFailed, match="on mock1 has ended with 78"):
            work(instances)
        found = instances.find("web1")
        assert (found.node, found.vm.state, len(found.vm.interfaces)) == (FIRST, state, nics)
        assert always(cloud) == []
        settings.unlink()
        cloud.scheduler.passes(60.0)
        instances.start("web1")
        cloud.scheduler.passes(10.0)
        assert wrong(cloud) == []
    finally:
        cloud.close()
