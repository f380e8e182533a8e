"""Strangers without a token cost a registry next to nothing, and one machine's many addresses are one."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography import x509 as library
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from netregistry.authority import x509
from netregistry.model.codec import Invalid
from netregistry.model.history import Identity
from netregistry.refusal import Refused
from netregistry.request import Call, new_id
from netregistry.service.issuing import Issuer
from netregistry.service.limits import Limits, Rate
from tests.support.registry import Registry

STRANGER = Identity("newcomer", "", "192.0.2.9")


def request(key: Any) -> str:
    builder = library.CertificateSigningRequestBuilder().subject_name(library.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def test_without_a_token_nobodys_request_is_read(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(text: str) -> Any:
        raise AssertionError("a stranger's request is read")

    monkeypatch.setattr(x509, "read_request", never)
    call = Call(
        new_id(registry.time, 1),
        "certificate.join",
        "",
        {"token": "0" * 8, "secret": "0" * 32, "request": request(ec.generate_private_key(ec.SECP256R1()))},
    )
    with pytest.raises(Refused) as refused:
        Issuer(registry.local, "").join(call, lambda call: registry.local.answer(call, STRANGER))
    assert refused.value.more["reason"] == "token-unknown"


@pytest.mark.parametrize("made", [lambda: rsa.generate_private_key(65537, 2048), lambda: ec.generate_private_key(ec.SECP384R1())])
def test_a_key_of_another_kind_is_refused_before_its_signature_is_checked(made: Any) -> None:
    """That may take a hundred times as long. So a request whose signature is wrong is refused for its key."""
    text = request(made())
    lines = text.split("\n")
    lines[-3] = lines[-3][:-8] + "AAAA" + lines[-3][-4:]
    for each in (text, "\n".join(lines)):
        with pytest.raises(Invalid, match="P-256"):
            x509.read_request(each)


def test_the_addresses_of_one_machine_are_one_stranger() -> None:
    rate = Rate(Limits(rate=1.0, burst=10.0), lambda: 0.0)
    for number in range(10):
        rate.count(Identity("newcomer", "", f"2001:db8::{number + 1:x}"))
    with pytest.raises(Refused, match="requests a second"):
        rate.count(Identity("newcomer", "", "2001:db8::ffff:1"))
    for other in ("2001:db8:0:1::1", "192.0.2.1", "192.0.2.2", "::ffff:192.0.2.3", "::ffff:192.0.2.4", "unix"):
        for _ in range(10):
            rate.count(Identity("newcomer", "", other))
