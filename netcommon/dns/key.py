"""The TSIG key: a file as `tsig-keygen` of BIND writes it, which root alone can read."""

from __future__ import annotations

import os
import stat
from base64 import b64decode
from binascii import Error
from typing import NamedTuple

from netcommon.dns.names import is_zone
from runtime.errors import SettingsInvalid

#: RFC 8945, section 6, less what it calls for no use of (hmac-md5).
ALGORITHMS = frozenset({"hmac-sha1", "hmac-sha224", "hmac-sha256", "hmac-sha384", "hmac-sha512"})

#: The setting that names the key file, where nothing else is said.
SETTING = "dns.key_file"

#: A key file is smaller than this (bytes).
LARGEST = 4096


class Key(NamedTuple):
    """A shared secret and what it is called at the server."""

    name: str
    algorithm: str
    secret: bytes

    def __repr__(self) -> str:
        """Without the secret: this may get into a log."""
        return f"Key({self.name!r}, {self.algorithm!r})"


def read(path: str, setting: str = SETTING) -> Key:
    """Read the key in the file at ``path``, which ``setting`` names. Raises SettingsInvalid, which never says what is in the file."""
    return parse(_text(path, setting), path, setting)


def parse(text: str, path: str, setting: str = SETTING) -> Key:
    """Give the key of a text such as ``key "name" { algorithm hmac-sha256; secret "..."; };``. Raises SettingsInvalid."""
    words = _words(text)
    if words[:1] != ["key"] or words[2:3] != ["{"] or words[-2:] != ["}", ";"]:
        raise _wrong(path, 'expected key "NAME" { algorithm ...; secret "..."; };', setting)
    name, body = words[1].lower().rstrip("."), words[3:-2]
    fields = dict(zip(body[::3], body[1::3], strict=False))
    if len(body) != 6 or set(fields) != {"algorithm", "secret"} or body[2::3] != [";", ";"]:
        raise _wrong(path, "expected one algorithm and one secret", setting)
    if not is_zone(name):
        raise _wrong(path, "the key's name is no name of the DNS", setting)
    algorithm = fields["algorithm"].lower().rstrip(".")
    if algorithm not in ALGORITHMS:
        raise _wrong(path, f"the algorithm must be one of {', '.join(sorted(ALGORITHMS))}", setting)
    try:
        secret = b64decode(fields["secret"], validate=True)
    except (Error, ValueError):
        secret = b""
    if not secret:
        raise _wrong(path, "the secret is not in base64", setting)
    return Key(name, algorithm, secret)


def _words(text: str) -> list[str]:
    """The words of a BIND configuration; comments are lines of their own, since base64 may hold "//"."""
    spaced = " ".join(line for line in text.splitlines() if not line.lstrip().startswith(("//", "#")))
    for sign in "{};":
        spaced = spaced.replace(sign, f" {sign} ")
    return [word.strip('"') for word in spaced.split()]


def _text(path: str, setting: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SettingsInvalid(f"{setting}: {path}: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _wrong(path, "is not a regular file", setting)
        if status.st_uid and status.st_uid != os.geteuid():
            raise _wrong(path, f"is owned by user {status.st_uid}; expected root (chown root {path})", setting)
        if status.st_mode & 0o077:
            raise _wrong(path, f"can be read by others than root (chmod 600 {path})", setting)
        return os.pread(descriptor, LARGEST, 0).decode("ascii", "replace")
    finally:
        os.close(descriptor)


def _wrong(path: str, text: str, setting: str) -> SettingsInvalid:
    return SettingsInvalid(f"{setting}: {path}: {text}")
