"""Say the value of an option as people write it."""

from __future__ import annotations

from runtime.format import rate


def network_text(value: object) -> str:
    """Give what guests are told of their network, as people write it."""
    if isinstance(value, dict):
        return " ".join(f"{name} by {each}" for name, each in value.items())
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def shown(name: str, value: object) -> str:
    """Give the value of the option ``name`` as the settings file would say it, a list with spaces; "none" for what there is none of."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and name.startswith("rate_"):
        return rate(value)
    return (" ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value) or "none"


def tag_text(value: object) -> str:
    """Give the value of an option as a tag would say it, a list with commas."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
