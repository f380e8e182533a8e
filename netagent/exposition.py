"""Where the metrics can be had: a file for node_exporter's textfile collector, and an address that Prometheus asks."""

from __future__ import annotations

import os
import resource
import socket
import stat
import threading
import time
from collections.abc import Callable
from typing import Any

from netagent.accepting import Accepting
from netagent.alarms import Alarms
from netagent.metrics import Metrics
from netcommon.settings import Settings
from runtime.errors import NetcommonError
from runtime.folder import Folder, refused

#: How often the file is written (seconds): as often as Prometheus asks by default.
INTERVAL = 15.0

#: Who asks has so long for all of it (seconds).
PATIENCE = 5.0

#: A request is shorter (bytes).
LONGEST = 8192

#: The media type of the text format 0.0.4.
TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: The alarms where the metrics cannot be had as the settings want it.
FILE_ALARM, LISTEN_ALARM = "metrics-file", "metrics-listen"


class Exposition:
    """Writes the file and answers at the address that the settings name, in threads of its own: disk and clients may be slow."""

    def __init__(self, metrics: Metrics, alarms: Alarms) -> None:
        self._metrics, self._alarms = metrics, alarms
        self._lock = threading.Lock()
        self._file = self._listen = ""
        self._changed, self._closing = threading.Event(), False
        self._server: Server | None = None
        self._writing: threading.Thread | None = None

    def start(self) -> None:
        """Nothing is exposed before ``configure``."""

    def configure(self, settings: Settings) -> None:
        """Exposes what the settings say from here on; what cannot be is an alarm. In the main thread."""
        with self._lock:
            left, self._file = self._file, settings.agent_metrics_file
        if left and left != self._file:
            _remove(left)  # numbers that nobody writes any more would be taken for true
        if not self._file:
            self._alarms.clear(FILE_ALARM)
        elif self._writing is None:
            self._writing = threading.Thread(target=self._write_on, name="metrics-file", daemon=True)
            self._writing.start()
        self._changed.set()
        if settings.agent_metrics_listen != self._listen:
            self._stop_listening()
            self._start_listening(settings.agent_metrics_listen)

    def text(self) -> str:
        """The metrics as of now, those of this process too."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        self._metrics.gauge("process_cpu_seconds_total", round(used.ru_utime + used.ru_stime, 3))
        self._metrics.gauge("process_open_fds", len(os.listdir("/proc/self/fd")) - 1)
        with open("/proc/self/statm", encoding="ascii") as file:
            self._metrics.gauge("process_resident_memory_bytes", int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        return self._metrics.text()

    def close(self) -> None:
        """Ends the threads; the file goes, so that nobody takes its numbers for true."""
        self._stop_listening()
        if self._writing is not None:
            self._closing = True
            self._changed.set()
            self._writing.join(PATIENCE)  # a disk that hangs is not waited for
            self._writing = None
            if self._file:
                _remove(self._file)

    def _write_on(self) -> None:
        while not self._closing:
            self._changed.clear()
            with self._lock:
                path = self._file
            if path:
                self._write(path)
                with self._lock:
                    left = path != self._file
                if left:  # it was moved meanwhile, and maybe taken away before it was written
                    _remove(path)
            self._changed.wait(INTERVAL)

    def _write(self, path: str) -> None:
        """Writes the file at once, as node_exporter wants it: a rename within its folder. Other users may read it."""
        try:
            found = Folder.find(os.path.dirname(path))
            if found is None:
                raise refused("cannot write", path, FileNotFoundError(2, "there is no such folder"))
            with found:
                found.write(os.path.basename(path), self.text().encode(), mode=0o644)
        except (NetcommonError, OSError) as error:
            self._alarms.set(FILE_ALARM, str(error))
        else:
            self._alarms.clear(FILE_ALARM)

    def _start_listening(self, address: str) -> None:
        self._listen = address
        self._alarms.clear(LISTEN_ALARM)
        if not address:
            return
        try:
            self._server = Server(address, self.text)
        except OSError as error:
            self._alarms.set(LISTEN_ALARM, f"cannot listen at {address}: {error.strerror or error}")

    def _stop_listening(self) -> None:
        self._listen = ""
        if self._server is not None:
            self._server.close()
            self._server = None


class Server:
    """Answers GET /metrics at an address, one client after the other, in a thread of its own. Raises OSError where it cannot listen.

    HTTP/1.0 as far as a scrape needs it: the standard library's server would cost 7 MB.
    """

    def __init__(self, address: str, text: Callable[[], str]) -> None:
        self._text = text
        self._path = address if address.startswith("/") else ""
        self._accepting = Accepting(_listening(address), "metrics", self._answer)

    @property
    def address(self) -> Any:
        """Where it listens, as the socket says."""
        return self._accepting.listener.getsockname()

    def close(self) -> None:
        """Ends the thread; a socket file is taken away."""
        self._accepting.close(2 * PATIENCE)
        if self._path:
            _remove(self._path)

    def _answer(self, client: socket.socket) -> None:
        end = time.monotonic() + PATIENCE
        request = b""
        while b"\r\n\r\n" not in request and b"\n\n" not in request and len(request) < LONGEST:
            client.settimeout(max(end - time.monotonic(), 0.001))
            part = client.recv(4096)
            if not part:
                break
            request += part
        method, _, rest = request.split(b"\n", 1)[0].decode("latin-1").strip().partition(" ")
        path = rest.split(" ")[0].split("?")[0]
        status, body = "200 OK", b""
        if method not in ("GET", "HEAD"):
            status = "405 Method Not Allowed"
        elif path != "/metrics":
            status, body = "404 Not Found", b"The metrics are at /metrics.\n"
        else:
            body = self._text().encode()
        kind = TYPE if status == "200 OK" else "text/plain"
        head = f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        client.settimeout(max(end - time.monotonic(), 0.001))
        client.sendall(head.encode("ascii") + (b"" if method == "HEAD" else body))


def _listening(address: str) -> socket.socket:
    """A socket that listens at "ADDRESS:PORT", "[ADDRESS]:PORT", or the path of a Unix socket. Raises OSError."""
    if address.startswith("/"):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        where: object = address
    else:
        host, _, port = address.rpartition(":")
        made = socket.socket(socket.AF_INET6 if host.startswith("[") else socket.AF_INET, socket.SOCK_STREAM)
        where = (host.strip("[]"), int(port))
    try:
        if address.startswith("/"):
            _remove(address)
        else:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(where)  # type: ignore[arg-type] # as its family wants it
        if address.startswith("/"):
            os.chmod(address, 0o666)  # noqa: S103 # its folder says who may ask; nothing can be changed here
        made.listen(8)
    except OSError:
        made.close()
        raise
    return made


def _remove(path: str) -> None:
    """Takes away a file or socket of ours, if it is there."""
    try:
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) or stat.S_ISSOCK(found.st_mode):
            os.unlink(path)
    except OSError:
        pass  # gone, or not ours to remove: whoever binds or writes there is told
