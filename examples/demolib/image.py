"""What the guests boot: Debian's cloud kernel, downloaded and not installed, and an initramfs of busybox with examples/guest/init."""

from __future__ import annotations

import lzma
import os
from pathlib import Path
from typing import NamedTuple

from tests.support.bootstrap import Kernel, SetupFailed, cache, find, kernel

INIT = Path(__file__).resolve().parents[1] / "guest/init"

#: In loading order; those that the kernel has built in are no files.
MODULES = (
    "button",
    "evdev",
    "failover",
    "net_failover",
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_net",
)


class Image(NamedTuple):
    """The files QEMU is given."""

    kernel: Path
    initramfs: Path


def image() -> Image:
    """Builds what is missing in the cache. Raises SetupFailed."""
    used = kernel("cloud-amd64")
    busybox = find("busybox")
    if busybox is None:
        raise SetupFailed("no busybox: install busybox-static")
    made = Image(used.image, cache() / "guest" / f"initramfs-{used.version}")
    sources = (INIT, Path(__file__), Path(busybox), used.modules)
    if not made.initramfs.exists() or made.initramfs.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        made.initramfs.parent.mkdir(exist_ok=True)
        beside = made.initramfs.with_name(f".{made.initramfs.name}.{os.getpid()}")
        # Not compressed: plain emulation unpacks slowly.
        beside.write_bytes(archive(_root(used, Path(busybox))))
        beside.replace(made.initramfs)
    return made


def _root(used: Kernel, busybox: Path) -> dict[str, tuple[int, bytes]]:
    """The files of the guest's root: path to mode and content."""
    files: dict[str, tuple[int, bytes]] = dict.fromkeys(("bin", "dev", "etc", "modules", "proc", "sys"), (0o040755, b""))
    files["bin/busybox"] = (0o100755, busybox.read_bytes())
    files["init"] = (0o100755, INIT.read_bytes())
    found = {path.name.partition(".")[0]: path for path in used.modules.rglob("*.ko*")}
    present = [name for name in MODULES if name in found]
    for name in present:
        path = found[name]
        files[f"modules/{name}.ko"] = (0o100644, lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes())
    files["modules/order"] = (0o100644, "".join(f"{name}.ko\n" for name in present).encode())
    return files


def archive(files: dict[str, tuple[int, bytes]]) -> bytes:
    """A cpio archive as the kernel unpacks it, "newc" (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    out = bytearray()
    for number, (name, (mode, content)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))], start=1):
        path = name.encode() + b"\0"
        # inode, mode, owner, group, links, time, size, device (2), special device (2), length of the name, checksum
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
        for part in (b"070701" + b"".join(b"%08x" % field for field in fields) + path, content):
            out += part + bytes(-(len(out) + len(part)) % 4)
    return bytes(out)
