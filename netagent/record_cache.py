"""Records by the bytes of their files: the agent's threads read each one many times, and to take it apart costs more than to read it."""

from __future__ import annotations

import threading

from runtime.record import Record, from_json

#: So many are kept, those that were read first go first: what is at work at a time, not all of a large node.
MOST = 512


class RecordCache:
    """For every thread."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._records: dict[bytes, Record] = {}

    def __call__(self, data: bytes) -> Record:
        """As runtime.record.from_json; nobody may change what is in the record. Raises as that."""
        record = self._records.get(data)
        if record is None:
            record = from_json(data)
            with self._lock:
                while len(self._records) >= self._most:
                    del self._records[next(iter(self._records))]
                self._records[data] = record
        return record
