"""The errors of this project; each says with which status a hook ends, and whether trying again can help.

Exit statuses follow sysexits(3): 64 the NIC's description is wrong, 69 the host refused, 75 try again later,
78 the settings are wrong.
"""

from __future__ import annotations

OK = 0
USAGE = 64
UNAVAILABLE = 69
TEMPORARY = 75
CONFIG = 78


def escaped(value: object, limit: int = 120) -> str:
    """``value`` as printable ASCII in quotes, cut after ``limit`` characters: safe to show in any log."""
    try:
        text = value if isinstance(value, str) else str(value)
    except ValueError:  # sys.set_int_max_str_digits
        text = "a number of thousands of digits"
    cut = text if len(text) <= limit else text[:limit]
    shown = cut
    if not (cut.isascii() and cut.isprintable()) or "\\" in cut:  # the codec is a module of its own: no plain text shall need it
        shown = cut.encode("unicode_escape", "backslashreplace").decode("ascii")
    shown = shown.replace("'", "\\'")
    return f"'{shown}'" + ("" if cut is text else f"... ({len(text)} characters)")


class NetcommonError(Exception):
    """Any failure we foresaw. ``status`` is the exit status; ``retry`` says whether trying again can help.

    ``advice`` is for people at a terminal: what to do next, where the message itself does not say it.
    """

    status = UNAVAILABLE
    retry = False
    advice = ""


class NicInvalid(NetcommonError):
    """A value in a NIC's description is not acceptable. Nothing was changed."""

    status = USAGE

    def __init__(self, variable: str, value: object, expected: str) -> None:
        self.variable, self.value, self.expected = variable, value, expected
        super().__init__(f"{variable}={escaped(value)}: expected {expected}")


class HostRefused(NetcommonError):
    """The host cannot do it as it is: something is missing or in the way.

    ``remedy``: what to do about it, where that is known: it ends the message, and nothing else is to be advised.
    """

    advice = "netcommon doctor examines this host, and says what to do"

    def __init__(self, text: str, remedy: str = "") -> None:
        super().__init__(f"{text}: {remedy}" if remedy else text)
        if remedy:
            self.advice = ""


def typed(error: Exception) -> NetcommonError:
    """Give the error as one of ours: an extension of the site's raises what it likes."""
    return error if isinstance(error, NetcommonError) else HostRefused(f"{type(error).__name__}: {error}")


class FileRefused(HostRefused):
    """The host cannot read or write a file of ours: the disk is full or read-only, or fails. Once that is over the same may succeed."""


class TryAgain(NetcommonError):
    """A lock, a service or the kernel was busy: the same call may succeed later."""

    status = TEMPORARY
    retry = True
    advice = "the same may succeed later: try again; netcommon doctor if it goes on"


class WaitsForUs(TryAgain):
    """Whoever holds a lock runs the script that asks for it, and waits for that to end: neither would before its time is over."""

    advice = "leave that NIC to the call that runs this script, or do it when the script has ended"


class Interrupted(BaseException):
    """A signal, or the end of its time, ends the whole call: who goes on after a failure, whichever it is, must not go on after this.

    So it is no Exception, as Ctrl-C is none: what a call has begun is taken back on its way up to the door.
    """

    status = TEMPORARY


class SettingsInvalid(NetcommonError):
    """The settings file cannot be used."""

    status = CONFIG
    advice = "correct it; netcommon config then reads the settings without touching anything"


class TemplateInvalid(SettingsInvalid):
    """A template that the settings or an option name cannot be used, or there is none."""

    advice = (
        "correct the template, or the option that names it; netcommon plan NIC --resolve then says what it makes, without touching anything"
    )


class RecordUnreadable(NetcommonError):
    """A file of ours does not parse. It is moved to quarantine with its bytes intact."""


class RecordTooNew(NetcommonError):
    """A record was written by a newer version of this software: it is left alone."""
