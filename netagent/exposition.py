"""Where the metrics can be had: a file for node_exporter's textfile collector, and an address that Prometheus asks."""

from __future__ import annotations

import os
import resource
import threading

from netagent.alarms import Alarms
from netagent.metrics import Metrics
from netagent.metrics_server import Server, remove
from netcommon.settings import Settings
from runtime.errors import NetcommonError
from runtime.folder import Folder, refused

#: How often the file is written (seconds): as often as Prometheus asks by default.
INTERVAL = 15.0

#: So long is waited for the thread that writes the file (seconds).
PATIENCE = 5.0

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
            remove(left)  # numbers that nobody writes any more would be taken for true
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
                remove(self._file)

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
                    remove(path)
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
