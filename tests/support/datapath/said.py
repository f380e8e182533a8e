"""Make single frames between named places of a drawn node, and hold what trace says of each against where it arrived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from netcommon.views.trace.trail import Path
from tests.support.datapath import places as at
from tests.support.datapath.changes import Change
from tests.support.datapath.compare import comparable, outcomes, predicted, steps
from tests.support.datapath.frames import FROM_GUEST, TO_GUEST, TOKEN, UDP, Shot, ip4, ip6, upper
from tests.support.datapath.stage import Scene
from tests.support.frames import IPV4, IPV6, mac_bytes
from tests.support.netns import run, sysctl

PLAIN_PORT = 9


class Said(NamedTuple):
    """Hold what trace says of a frame, and where it arrived."""

    path: Path
    arrived: frozenset[str]
    right: bool  #: both are the same

    @property
    def reserved(self) -> bool:
        return bool(self.path.untold)


class Frames:
    """Frames of one node, each with a token of its own."""

    def __init__(self, mode: str) -> None:
        self.place = at.place(mode)
        self.made: list[Shot] = []

    def token(self) -> bytes:
        return TOKEN + (len(self.made) + 1).to_bytes(6, "big")

    def raw(self, way: str, kind: int, packet: bytes, words: str, target: str = "", tag: bytes = b"", source: str = "") -> Shot:
        """Add a frame from the guest to the node, or from outside for the guest, with this packet in it, which has the token."""
        bridged = self.place.mode == at.BRIDGED
        source = source or (at.GUEST_MAC if way == FROM_GUEST else at.OUT_MAC)
        target = target or (self.place.macs["node"] if way == FROM_GUEST else at.GUEST_MAC if bridged else at.UP_MAC)
        data = (mac_bytes(target) + mac_bytes(source) + tag + kind.to_bytes(2, "big") + packet).ljust(60, b"\0")
        shot = Shot(way, f"{source} > {target} {words}", data, self.token())
        self.made.append(shot)
        return shot

    def sent(self, source: str, target: str, protocol: int = UDP, body: bytes | None = None, mac: str = "", way: str = FROM_GUEST) -> Shot:
        """Add a packet, by default of UDP with the token."""
        six = ":" in target
        body = upper(protocol, source, target, self.token(), PLAIN_PORT) if body is None else body
        packet = (ip6 if six else ip4)(source, target, protocol, body)
        return self.raw(way, IPV6 if six else IPV4, packet, f"{source} > {target} {protocol}", mac)

    def received(self, source: str, target: str, mac: str = "") -> Shot:
        """Add one that comes from outside."""
        return self.sent(source, target, mac=mac, way=TO_GUEST)


def said(
    frames: Frames,
    commands: Sequence[str] = (),
    settings: Sequence[tuple[str, str]] = (),
    nft: str = "",
    more: Callable[[], None] = lambda: None,
) -> list[Said]:
    """Put a node up, change it by ``commands`` of ip(8), settings, rules of nft(8) and ``more``, then trace and send each frame."""

    def prepare() -> None:
        for path, value in settings:
            sysctl(path, value)
        for line in commands:
            run("ip", *line.split())
        if nft:
            run("nft", "-f", "-", stdin=nft + "\n")
        more()

    scene = Scene("said", frames.place, False, (Change("said"),), tuple(frames.made))
    found = []
    for shot, path, seen in outcomes(scene, prepare):
        found.append(Said(path, seen, comparable(predicted(path), shot) == seen))
        print(shot.words, "arrived", sorted(seen), "says", path.ends, path.untold)
        print(steps(path))
    assert len(found) == len(frames.made)
    return found


def outcome(found: Sequence[Said]) -> list[tuple[str, bool]]:
    """Return where each frame arrived, and whether trace told that for sure: then it must be right."""
    assert all(each.right or each.reserved for each in found)
    return [("".join(sorted(each.arrived)), not each.reserved) for each in found]
