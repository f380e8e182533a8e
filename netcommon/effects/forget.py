"""A bridge forgets the MACs that it has learnt from a guest which may send from them no more: the frames for them went on to the guest."""

from __future__ import annotations

from netcommon.effects.base import Effect
from netcommon.host.api.requests import FlushPort
from runtime.errors import HostRefused
from runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netcommon.effects.base import Scene


class ForgetFields(NamedTuple):
    """The fields of Forget."""

    device: str
    ifindex: int


class Forget(ForgetFields, Effect):
    """Forget what was learnt behind the port; it is learnt again of what may be sent. A device that is no port any more has nothing."""

    __slots__ = ()

    def perform(self, scene: Scene) -> None:
        request = FlushPort(self.ifindex)
        (said,) = scene.host.execute([request], stop=False)
        if not said.ok and said.errno not in request.gone:
            raise HostRefused(f"what the bridge has learnt from the guest stays until it ages: {said.text}")

    def describe(self) -> str:
        return f"ip link set dev {self.device} type bridge_slave fdb_flush"
