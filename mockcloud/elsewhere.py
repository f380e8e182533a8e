"""Reach a registry's service elsewhere, by TLS: this machine as an operator that has joined, and each mock node as the node that it is."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mockcloud.served_registry import ServedRegistry
from mockcloud.sysinfo import ANOTHER
from netregistry import credentials, joining
from netregistry.client import Client
from netregistry.reach import parsed
from runtime.errors import HostRefused, NetcommonError, escaped
from runtime.paths import Paths

if TYPE_CHECKING:
    from mockcloud.replaced.scheduler import RealTime
    from netregistry.credentials import Credentials

HTTPS = "https://"
LIB = Paths().lib  #: what this machine itself has joined with
LOOK, DAILY = 60.0, 86400.0  #: seconds from one look at the operator's certificate to the next, and from asking which authorities count
GOOD = 3600.0  #: seconds for which a token is good


class RegistryElsewhere(ServedRegistry):
    """The service at an address, https://HOST:PORT. ``lib``: where the operator's certificate is.

    Raises HostRefused where this machine is no operator of it, TryAgain where it does not answer.
    """

    def __init__(self, scheduler: RealTime, url: str, lib: str = LIB) -> None:
        self._url, self._lib = url, lib
        found = credentials.read(lib, "operator")
        if found is None or parsed(url) not in map(parsed, found.addresses):
            what = f"this machine is no operator of the registry at {escaped(url)}"
            raise HostRefused(what, "netcommon registry token create operator NAME on its machine, netcommon registry join URL TOKEN here")
        operator = Client(found.places([url]))
        try:
            operator.get("")
        except BaseException:
            operator.close()
            raise
        self._use(scheduler, "", operator)
        self._keep()

    def _renewed(self) -> None:
        """Renew the operator's certificate where it is time for that, and ask which authorities count; what fails is tried again later."""
        with suppress(NetcommonError):  # it counts until its end, which the registry says then
            found, now = credentials.read(self._lib, "operator"), time.time()
            if found is not None and (found.due(now) or now >= found.looked + DAILY):
                credentials.refresh(found, self._operator, now)

    def _keep(self) -> None:
        self._loop.after(LOOK, self._keep)
        self._renewed()

    def client(self, role: str = "operator", name: str = "root") -> Client:
        """Give the operator's client, which is kept open; a node has its own, by its certificate. Raises HostRefused."""
        if role != "operator":
            raise HostRefused(f"the registry is not to be asked as {role} {escaped(name)}", "its certificate says who asks")
        return self._operator

    def join(self, uuid: str, name: str, paths: Paths, cluster: str = "") -> dict[str, Any]:
        """Let a node join by a token of its own, for one that has joined before where it has. Raises Problem, HostRefused, TryAgain."""
        known = next((each["node"] for each in self._operator.all("nodes", name=name)), None)
        if known is not None and known["uuid"] != uuid:
            raise HostRefused(f"the registry has another node {escaped(name)}", "forget that one, or use another registry")
        body = {"uuid": uuid, "name": name, "kind": "virtual", "cluster": cluster}
        if known is None or self._kept(uuid, paths.lib) is None:
            self._joined(paths.lib, uuid if known else "", {"uuid": uuid} if known else body)  # it is what the registry knows
        self.remember(uuid, name, paths)
        found: dict[str, Any] = self._operator.get(f"nodes/{uuid}").body
        return found

    def recognise(self, uuid: str, paths: Paths) -> None:
        super().recognise(uuid, paths)
        if self._kept(uuid, paths.lib) is None:
            raise HostRefused(f"there is no certificate of this node in {paths.lib}/{credentials.FOLDER}/node", ANOTHER)

    def _kept(self, uuid: str, lib: str) -> Credentials | None:
        """Give what a node has joined with, if it is whole."""
        with suppress(HostRefused):
            found = credentials.read(lib, "node")
            return found if found is not None and found.name == uuid else None
        return None

    def _joined(self, lib: str, again: str, node: dict[str, Any]) -> None:
        """Make a token, and let a node join by it; ``again``: the UUID of one that has joined before."""
        signs = [each["authority"]["fingerprint"] for each in self._operator.all("authorities") if each["signs"]]
        if not signs:
            raise HostRefused("the registry has no authority", "netcommon registry authority rotate, on its machine, makes one")
        token = joining.make("node", signs[0])
        wanted = {"id": token.id, "proof": token.proof, "role": "node", "name": again, "seconds": GOOD}
        self._operator.change("POST", "tokens", wanted)
        try:
            joining.join(lib, [self._url], token, node)
        except BaseException:
            with suppress(NetcommonError):
                self._operator.change("DELETE", f"tokens/{token.id}")
            raise
