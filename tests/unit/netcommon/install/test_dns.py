"""`netcommon install --ganeti` puts the DNS hook in place where the settings have zones, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from netcommon.install import install
from netcommon.install.targets import DNS_OPERATIONS
from tests.support.bootstrap import ROOT


@pytest.mark.parametrize("zones", [(), ("example.com",)])
def test_only_where_there_are_zones(tmp_path: Path, zones: tuple[str, ...]) -> None:
    for path, text in (
        ("usr/lib/ganeti/kvm-ifup", "#!/bin/sh\n"),
        ("etc/netcommon/config.toml", f"[dns]\nzones = {list(zones)}\n"),
        ("var/lib/dpkg/status", ""),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    hooks = tmp_path / "etc/ganeti/hooks"
    install("ganeti", str(tmp_path), run=lambda _argv: 0)
    made = sorted(path.relative_to(hooks).parts[0] for path in hooks.rglob("netcommon-dns"))
    assert made == (sorted(f"instance-{word}-post.d" for word in DNS_OPERATIONS) if zones else [])
    for wrapper in hooks.rglob("netcommon-dns"):
        assert str(ROOT / "hooks/ganeti-dns-hook") in wrapper.read_text()
        assert wrapper.stat().st_mode & 0o777 == 0o755
    install("ganeti", str(tmp_path), uninstall=True, run=lambda _argv: 0)
    assert not hooks.exists()
