"""Ask a registry by what a machine has joined with: one certificate that counts no more does not shut out the others."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from netregistry.client import Answer, Asker, Problem
from netregistry.reach import NoCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from netregistry.client import Client, Question
    from netregistry.credentials import Credentials
    from runtime.errors import NetcommonError

T = TypeVar("T")


class CertifiedClient(Asker):
    """Ask by the first certificate; what is only looked at, by the next one where that counts no more, or its authority is not known.

    What changes something is asked for by the first one alone: whoever types it means to be that one. ``make``: gives a client that shows
    a certificate; ``told``: hears, once, why the first one does not count, and as whom it was asked instead.
    """

    def __init__(
        self,
        first: Credentials,
        others: Iterator[Credentials],
        make: Callable[[Credentials], Client],
        told: Callable[[NetcommonError, str], None],
    ) -> None:
        super().__init__()
        self._one, self._others, self._make, self._told = first, others, make, told
        self._client = make(first)
        self._stale: NetcommonError | None = None  # why the first one does not count, once another one is shown

    def _asked(self, question: Question) -> Answer:
        return self._by(lambda client: client.ask(question), question.method == "GET")

    def watch(self, node: str, start: str = "", incarnation: str = "") -> Iterator[dict[str, Any]]:
        """As Client does."""
        return self._by(lambda client: _begun(client.watch(node, start, incarnation)))

    def backup(self) -> Iterator[bytes]:
        """As Client does."""
        return self._by(lambda client: _begun(client.backup()))

    def export(self) -> Iterator[bytes]:
        """As Client does."""
        return self._by(lambda client: _begun(client.export()))

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        self._client.close()

    def _by(self, act: Callable[[Client], T], looks: bool = True) -> T:
        if self._stale is not None and not looks:
            raise self._stale
        while True:
            try:
                found = act(self._client)
            except (Problem, NoCertificate) as refused:
                if isinstance(refused, Problem) and refused.kind != "certificate":
                    if self._stale is not None and refused.kind == "forbidden":
                        raise self._stale from None  # the first one might
                    raise
                stale = self._stale or _named(refused, self._one)
                other = next(self._others, None) if looks else None
                if other is None:
                    raise stale from None
                self._stale = stale
                self._client.close()
                self._one, self._client = other, self._make(other)
            else:
                if self._stale is not None:
                    self._told(self._stale, self._one.role)
                    self._told = lambda _stale, _role: None
                return found


def _begun(pieces: Iterator[T]) -> Iterator[T]:
    """Give what comes in pieces, of which the first is there: a refusal comes before it."""
    return chain([first for _, first in zip(range(1), pieces, strict=False)], pieces)


def _named(refused: Problem | NoCertificate, one: Credentials) -> NetcommonError:
    """Give a refusal of a certificate that says which of the machine's it is, and how a person's is got rid of."""
    where = f"by {one.folder}" if one.role == "node" else f"where that is wanted no more: rm -r {one.folder}"
    text = f"{refused} (asked as {one.role} {one.name}, {where})"
    return Problem({**refused.document, "detail": text}) if isinstance(refused, Problem) else type(refused)(text)
