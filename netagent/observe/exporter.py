"""Where the metrics can be had: a file for node_exporter's textfile collector, and an address that Prometheus asks."""

from __future__ import annotations

import os
import resource
import stat
import threading

from netagent.observe.alarms import Alarms
from netagent.observe.metrics import Metrics
from netagent.observe.metrics_server import Server
from netcommon.settings.model import Settings
from runtime.errors import HostRefused, NetcommonError, escaped
from runtime.folder import Folder, refused

#: How often the file is written (seconds): as often as Prometheus asks by default.
INTERVAL = 15.0

#: So long is waited for the thread that writes the file (seconds).
PATIENCE = 5.0

#: The alarms where the metrics cannot be had as the settings want it.
FILE_ALARM, LISTEN_ALARM = "metrics-file", "metrics-listen"

#: A file of ours begins so, whatever is counted, and whichever version wrote it. No other file is written over or removed.
MARK = b"# HELP netcommon_"


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
        self._changed.set()  # before the thread begins, which would write the file twice
        if not self._file:
            self._alarms.clear(FILE_ALARM)
        elif self._writing is None:
            self._writing = threading.Thread(target=self._write_on, name="metrics-file", daemon=True)
            self._writing.start()
        if settings.agent_metrics_listen != self._listen or self._server is None:
            self._stop_listening()
            self._start_listening(settings.agent_metrics_listen)

    def text(self) -> str:
        """The metrics as of now, those of this process too."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        own = Metrics()
        own.gauge("process_cpu_seconds_total", round(used.ru_utime + used.ru_stime, 3))
        own.gauge("process_open_fds", len(os.listdir("/proc/self/fd")) - 1)
        with open("/proc/self/statm", encoding="ascii") as file:
            own.gauge("process_resident_memory_bytes", int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
        return self._metrics.text() + own.text()

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
        """Writes the file at once, as node_exporter wants it: a rename within its folder. Other users may read it.

        Without the metrics of this process: node_exporter has some of the same names, its own, and would show none of either.
        """
        try:
            found = Folder.find(os.path.dirname(path))
            if found is None:
                raise refused("cannot write", path, FileNotFoundError(2, "there is no such folder"))
            with found:
                if _beginning(found, path) not in (None, b"", MARK):
                    what = f"{escaped(path)} is no file of netcommon's metrics, and stays as it is"
                    raise HostRefused(what, "expected a path where there is nothing, or an empty file")
                found.write(os.path.basename(path), self._metrics.text().encode(), mode=0o644)
        except (NetcommonError, OSError) as error:
            self._alarms.set(FILE_ALARM, str(error))
        else:
            self._alarms.clear(FILE_ALARM)

    def _start_listening(self, address: str) -> None:
        self._listen = address
        try:
            self._server = Server(address, self.text) if address else None
        except HostRefused as error:
            self._alarms.set(LISTEN_ALARM, f"cannot listen at {address}: {error}")
        except OSError as error:
            self._alarms.set(LISTEN_ALARM, f"cannot listen at {address}: {error.strerror or error}")
        else:
            self._alarms.clear(LISTEN_ALARM)

    def _stop_listening(self) -> None:
        self._listen = ""
        if self._server is not None:
            self._server.close()
            self._server = None


def _beginning(folder: Folder, path: str) -> bytes | None:
    """Read how the file at ``path``, in ``folder``, begins; None where there is none. Raises OSError; HostRefused for no plain file."""
    name = os.path.basename(path)
    try:
        found = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise HostRefused(f"{escaped(path)} is no plain file, and stays as it is", "expected a path where there is nothing")
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder.descriptor)
    try:
        return os.read(descriptor, len(MARK))
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    """Takes the file of the metrics away, if there is one of ours."""
    try:
        found = Folder.find(os.path.dirname(path))
        if found is not None:
            with found:
                if _beginning(found, path) == MARK:
                    found.remove(os.path.basename(path))
    except (NetcommonError, OSError):
        pass  # not ours to remove: whoever writes there is told
