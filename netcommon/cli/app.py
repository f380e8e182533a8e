"""What every subcommand works with: the paths, the settings, the node, the log. Tests give another host, clock and user."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from netcommon.host.api.host import Host
from netcommon.lifecycle.context import START, Call, Clock, Node, linux, open_node
from netcommon.log import INFO, NOTHING, Journal, Log, Sender, Syslog
from netcommon.scripts.site import held
from netcommon.settings.load import load
from netcommon.settings.model import Settings
from runtime.errors import HostRefused, SettingsInvalid
from runtime.nic import Nic
from runtime.paths import Paths
from runtime.store import Store

if TYPE_CHECKING:
    from netcommon.lifecycle.context import MakeHost


def new_uuid() -> str:
    """A random UUID (RFC 4122, 4.4)."""
    return str(uuid4())


def kernel_features() -> Mapping[str, str]:
    """What this kernel can do, tried out in a namespace of its own."""
    from netcommon.doctor import probe

    return probe.run()


class Echo:
    """Passes lines on to ``sender``, and with ``verbose`` shows the steps among them on stderr as they are done."""

    def __init__(self, sender: Sender) -> None:
        self.sender, self.verbose = sender, False
        self.dropped = 0  # nobody at a terminal is told that there is no syslog: everything is said here

    def send(self, severity: int, text: str, fields: Mapping[str, object] = NOTHING) -> None:
        self.sender.send(severity, text, fields)
        if self.verbose and severity >= INFO:
            click.echo(text, err=True)

    def close(self) -> None:
        self.sender.close()


class App:
    """One run of the command line."""

    def __init__(
        self,
        paths: Paths | None = None,
        clock: Clock | None = None,
        make_host: MakeHost = linux,
        sender: Sender | None = None,
        environ: Mapping[str, str] | None = None,
        uid: int | None = None,
        new_uuid: Callable[[], str] = new_uuid,
        root: str = "/",
        try_kernel: Callable[[], Mapping[str, str]] = kernel_features,
    ) -> None:
        self.paths, self.clock, self.new_uuid = paths or Paths(), clock or Clock(), new_uuid
        self.environ: Mapping[str, str] = os.environ if environ is None else environ
        self.root, self.try_kernel = root, try_kernel
        self._make_host, self._uid = make_host, os.geteuid() if uid is None else uid
        self._syslog = sender if isinstance(sender, Syslog) else Syslog(self.paths.log)
        self._sender = sender or Journal(self.paths.journal, self._syslog)
        self._echo = Echo(self._sender)
        self.log = Log(self._echo)
        self._settings: Settings | None = None
        self._stores: list[Store] = []

    @property
    def verbose(self) -> bool:
        """Each step is shown as it is done."""
        return self._echo.verbose

    @verbose.setter
    def verbose(self, value: bool) -> None:
        self._echo.verbose = value

    def settings(self, strict: bool = True) -> Settings:
        """The settings. A broken file is an error (SettingsInvalid) if ``strict``; else the defaults serve, and it is said."""
        if self._settings is None:
            try:
                self._settings = load(self.paths)
            except SettingsInvalid as error:
                if strict:
                    raise
                self.log.warning(f"the settings are broken, the defaults are used: {error}")
                return Settings(broken=str(error))
            self._syslog.facility = self._settings.syslog_facility
            for line in self._settings.renamed:
                self.log.warning(line)
        return self._settings

    @property
    def is_root(self) -> bool:
        """Whether the host may be changed."""
        return self._uid == 0

    def host(self, strict: bool = True) -> Host:
        """The host. Raises SettingsInvalid if ``strict``."""
        return self._make_host(self.paths, self.settings(strict), self.clock)

    def node(self, strict: bool = True, readonly: bool = False) -> Node:
        """The node; ``readonly`` for what only looks, which needs no root as far as permissions allow.

        Raises SettingsInvalid, TryAgain or HostRefused.
        """
        if not (readonly or self.is_root):
            raise HostRefused("this changes the host, which only root can do", "run it as root")
        node = open_node(self.paths, self.settings(strict), self.clock, self._make_host, readonly, closes=self.log.close)
        node.store.kept = held(self.environ)
        self._stores.append(node.store)
        return node

    def call(self, context: str = START, nic: Nic | None = None, final: bool = False, seconds: float = 0, phase: str = "") -> Call:
        """A call that begins now and has the hook's time limit, or ``seconds``; its lines bear the NIC's names."""
        log = self.log.bind(nic.instance, nic.index, nic.uuid, nic.interface) if nic else self.log
        limit = seconds or (self._settings or Settings()).hook_timeout
        return Call(log, self.clock.now() + limit, "cli", context, phase, final=final)

    def finish(self) -> None:
        """Says what is left to say, and closes what is open."""
        for store in self._stores:
            for problem in store.problems:
                self.log.warning(problem)
            store.close()
        self._stores.clear()
        summary = self.log.summary()
        if summary:
            click.echo(summary, err=True, nl=False)
        self.log.close()
