"""Run the service: the store opened, the socket bound, signals and time heeded, until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web

from netcommon.process.notify import Notifier
from netcommon.process.socket_file import OWNER, SocketFile
from netregistry.refusal import Refused
from netregistry.service import cut_off
from netregistry.service.connection import Connection, refusal
from netregistry.service.http import Service
from netregistry.service.leading import depose, named
from netregistry.service.limits import Limits, within
from netregistry.service.names import FOLDER, SECONDS, Names
from netregistry.service.naming import Naming
from netregistry.service.publishing import Publishing
from netregistry.service.registry import Registry
from netregistry.service.streams import PARTS
from netregistry.service.tls import Door, Listening, listened
from netregistry.stores.base import Unavailable
from netregistry.stores.etcd import EtcdStore
from netregistry.stores.files import swept
from netregistry.stores.opening import opened
from netregistry.stores.sqlite import SqliteStore
from runtime.errors import HostRefused, NetcommonError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from netregistry.service.http import Front
    from netregistry.service.registry import Log
    from netregistry.stores.base import Store, Unavailable
    from netregistry.zone.publisher import Publisher

TICK = 1.0  #: seconds
ZONE = 10.0  #: seconds from one look at which servers the underlay's zone has to the next
PAUSE = 0.2  #: seconds before the next connection is let in where one could not be
BACKLOG = 512
RESERVED = 64  #: connections that those of other machines do not get
NOWHERE = Listening()
LOOKING = "pages"  #: the socket for pages alone, beside the other one: who lets a browser reach it lets it look, and no more
ENDING = 5.0  #: seconds for what is being answered when the service is told to end; longer than that nobody is waited for


def run(
    where: str,
    listen: str,
    version: str,
    environ: Mapping[str, str],
    log: Log,
    others: Listening = NOWHERE,
    front: Callable[[Service], Front] | None = None,
    publisher: Publisher | None = None,
) -> None:
    """Serve the registry in a file or an etcd on the UNIX socket ``listen``, and to ``others`` by TLS, until SIGTERM or SIGINT.

    ``front``: makes what is served beside the API; it has a socket of its own too. ``publisher``: keeps the zone of the underlay's names.

    Raises HostRefused, Damaged where it cannot, TryAgain where another process has the file, or no majority of the etcd answers; also where
    the etcd has become another registry (Unavailable): all of this one's view and streams count no more, and a new start begins anew.
    """
    store = opened(where)
    try:
        if isinstance(store, SqliteStore):
            depose(store, log)
        asyncio.run(_run(store, listen, version, Notifier(environ), log, others, front, publisher))
    finally:
        store.close()


async def _run(
    store: Store,
    listen: str,
    version: str,
    notifier: Notifier,
    log: Log,
    others: Listening,
    front: Callable[[Service], Front] | None,
    publisher: Publisher | None,
) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    limits = within(Limits())
    if limits != Limits():
        log.warning(f"there are descriptors for {limits.connections} connections, {limits.streams} of them streams: raise LimitNOFILE")
    async with serving(store, listen, version, log, limits, others, front, publisher) as service:
        gc.freeze()  # no collection of garbage goes through the registry: nobody would be answered meanwhile, and there is none in it
        where = ", ".join((listen, *(f"{address} port {port}" for address, port in others.addresses)))
        log.info(f"serving the registry on {where}, epoch {store.epoch}")
        notifier.ready()
        watchdog = asyncio.create_task(_alive(notifier, service))
        over = await _over(store, ended)
        if over is not None:
            log.error(str(over))
        notifier.stopping()
        watchdog.cancel()
    log.info("stopped")
    if over is not None:
        raise over


async def _over(store: Store, ended: asyncio.Event) -> Unavailable | None:
    """Wait until the service is told to end, or its store is found to have become another registry; say so then."""
    while not ended.is_set():
        if isinstance(store, EtcdStore) and store.over:
            return store.another_epoch()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), TICK)
    return None


async def _alive(notifier: Notifier, service: Service) -> None:
    """Tell the service manager that the registry's turn still comes."""
    while notifier.watchdog:
        await service.turn(notifier.alive, own=True)
        await asyncio.sleep(notifier.watchdog / 3)


@contextlib.asynccontextmanager
async def serving(
    store: Store,
    listen: str,
    version: str,
    log: Log,
    limits: Limits,
    others: Listening = NOWHERE,
    front: Callable[[Service], Front] | None = None,
    publisher: Publisher | None = None,
) -> AsyncIterator[Service]:
    """Serve while the context lasts; all that was begun is done before it ends, and the store closed. Raises HostRefused."""
    name = named(listen)
    registry = Registry(store, version, log, limits, keys=others.keys, name=name)
    service = Service(registry, version, limits)
    runner = web.AppRunner(service.application(front(service) if front is not None else None), access_log=None)
    await runner.setup()
    with contextlib.ExitStack() as stack:
        stack.callback(service.close)
        bound = stack.enter_context(_listening(listen))
        if isinstance(store, EtcdStore):  # who listens here is the one service of this machine
            depose(store, log, name)
            if others.keys:
                swept(others.keys)
        looking = stack.enter_context(_listening(os.path.join(os.path.dirname(listen), LOOKING))) if front is not None else None
        elsewhere = [stack.enter_context(each) for each in listened(others)]  # nobody is let in before all are bound
        server = cast("web.Server", runner.server)
        speak = partial(Connection, server, asyncio.get_running_loop(), service.figures, log)
        tls = Door(others, os.path.dirname(listen), registry.local.core, service.figures.away)
        doors = [asyncio.create_task(_accept(bound, partial(_let_in, server, speak, limits), log))]
        if looking is not None:
            doors.append(asyncio.create_task(_accept(looking, partial(_let_in, server, partial(speak, looks=True), limits), log)))
        for each in elsewhere:
            each.listen(BACKLOG)
            each.setblocking(False)
            doors.append(asyncio.create_task(_accept(each, partial(_let_in_by_tls, tls, server, speak, limits), log)))
        naming = Naming(registry, publisher.servers if publisher is not None else ())
        publishing = Publishing(publisher, naming.wanted, naming.published, log, naming.left) if publisher is not None else None
        names = Names(os.path.join(os.path.dirname(listen), FOLDER), lambda: registry.local.view, registry.index, log)
        stack.callback(names.remove)

        def signs_of_life() -> None:
            registry.streams.beat(registry.local.view, registry.streams.due(time.monotonic(), limits.beat))

        def renewed() -> None:
            tls.renewed()
            service.figures.until = tls.until

        def at_once() -> None:
            with contextlib.suppress(Exception):  # what is committed is done, whatever comes of this; the next turn of the clock says it
                renewed()

        if others.addresses:
            registry.other_authorities = at_once

        clocks = [
            *([asyncio.create_task(_every(TICK, service, renewed, log))] if others.addresses else []),
            asyncio.create_task(_every(limits.beat, service, registry.sift, log)),
            asyncio.create_task(_every(SECONDS, service, names.write, log)),
            asyncio.create_task(_every(ZONE, service, naming.settle, log)),
            asyncio.create_task(_every(TICK, service, registry.tick, log)),
            asyncio.create_task(_every(limits.beat / PARTS, service, partial(registry.keep, PARTS, 2 * limits.beat), log)),
            asyncio.create_task(_every(limits.beat / PARTS, service, signs_of_life, log)),
        ]
        if publishing is not None:
            naming.wake = publishing.wake
            registry.add(naming)
            clocks += publishing.begin(service.turn)
            stack.callback(publishing.stop)
        try:
            yield service
        finally:
            service.stop()
            for task in (*doors, *clocks):
                task.cancel()
            tls.close()
            await service.turn(registry.close, own=True)
            for connection in server.connections:
                connection.close()  # who asks nothing now is not waited for
            await server.shutdown(ENDING)
            await tls.emptied()
            await runner.cleanup()


@contextlib.contextmanager
def _listening(path: str) -> Iterator[socket.socket]:
    """Listen on a UNIX socket of root's own, which is gone at the end. Raises HostRefused."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        try:
            file = SocketFile(bound, path, OWNER)
        except OSError as error:
            raise HostRefused(
                f"cannot listen on {path}: {os.strerror(error.errno or 0)}", "expected a folder of root's that is there"
            ) from None
        try:
            bound.listen(BACKLOG)
            bound.setblocking(False)
            yield bound
        finally:
            file.remove()


async def _accept(bound: socket.socket, let_in: Callable[[socket.socket, Any], Awaitable[None]], log: Log) -> None:
    """Let connections in, one after the other."""
    loop, full = asyncio.get_running_loop(), False
    while True:
        try:
            await let_in(*await loop.sock_accept(bound))
            full = False
        except OSError as error:
            if not full:
                log.warning(f"a connection was not let in: {error.strerror}")
            full = True
            await asyncio.sleep(PAUSE)


async def _let_in(server: web.Server, speak: Callable[[], Connection], limits: Limits, connection: socket.socket, _address: Any) -> None:
    """Let a connection in, if there may be one more. One too many is told so at once: it would wait until it gave up."""
    with contextlib.ExitStack() as stack:
        stack.callback(connection.close)
        if len(server.connections) >= limits.connections:
            with contextlib.suppress(OSError):  # who does not take it is gone
                connection.send(refusal(Refused("too-many", f"{limits.connections} connections are open", retry_after=5)))
        else:
            await asyncio.get_running_loop().connect_accepted_socket(speak, connection)
            stack.pop_all()


async def _let_in_by_tls(
    door: Door, server: web.Server, speak: Callable[[], Connection], limits: Limits, connection: socket.socket, address: Any
) -> None:
    """Let a connection in whose handshake takes its time; some are left to those of this machine."""
    if len(server.connections) >= limits.connections - RESERVED:
        connection.close()
        door.relieve()
    else:
        cut_off.limit(connection)
        door.enter(connection, str(address[0]), speak)


async def _every(seconds: float, service: Service, work: Callable[[], None], log: Log) -> None:
    """Do something again and again, whatever comes of it: what keeps it from being done is said once."""
    said = ""
    while True:
        failed, say = "", log.warning
        try:
            await service.turn(work, own=True)
        except NetcommonError as error:
            failed = str(error)
        except Exception as error:
            failed, say = repr(error), log.error
        if failed and failed != said:
            say(f"what is due is not done: {failed}")
        elif said and not failed:
            log.info(f"what was due is done again: {said}")
        said = failed
        await asyncio.sleep(seconds)
