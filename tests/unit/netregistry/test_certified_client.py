"""Ask by a certificate that counts no more, and then does again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from netregistry.certified_client import CertifiedClient
from netregistry.client import Answer, Client, Question
from netregistry.credentials import Credentials
from netregistry.reach import NoCertificate, NoCertificateYet

ONE = Credentials("/lib", "importer", "gnt.example.com", ("https://localhost",), 0.0, 1.0, "0123abcd")


class Place:
    """Give what a service answers, or why it does not."""

    def __init__(self) -> None:
        self.refused: Exception | None = None

    def ask(self, _question: Question) -> Answer:
        if self.refused is not None:
            raise self.refused
        return Answer({}, "first:1")

    def close(self) -> None:
        pass


@pytest.mark.parametrize("kind", [NoCertificate, NoCertificateYet])
def test_who_has_one_certificate_goes_on_when_it_counts_again(kind: type[NoCertificate]) -> None:
    """As the importer does, which runs on when its machine has joined again: what it changes was refused until it was started anew."""
    place, told = Place(), list[Any]()
    client = CertifiedClient(ONE, iter(()), lambda _one: cast("Client", place), lambda *said: told.append(said))
    place.refused = kind("it is of no authority that counts")
    for method in ("GET", "POST"):
        with pytest.raises(kind, match="asked as importer"):
            client.ask(Question(method, "nics"))
    place.refused = None
    assert client.get("nics").revision == client.change("POST", "nics").revision == "first:1" and told == []
