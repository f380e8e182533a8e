"""Addresses of etcds: what is one, what is none, and what would go in the clear."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from netcommon.settings.types import EtcdAddress
from netregistry.stores.etcd_place import LONGEST_PASSWORD, Endpoint, Place, context_of, password_of, place
from runtime.errors import HostRefused

FILES = "ca=/c&cert=/d&key=/k"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("etcd://127.0.0.1", Place((Endpoint("127.0.0.1", 2379),))),
        ("etcd://localhost:1,127.0.0.2:2,[::1]:3/", Place((Endpoint("localhost", 1), Endpoint("127.0.0.2", 2), Endpoint("::1", 3)))),
        ("etcd://a.example.com,[2001:DB8::0:1]?ca=/c", Place((Endpoint("a.example.com", 2379), Endpoint("2001:db8::1", 2379)), "/c")),
        (f"etcd://10.0.0.1?{FILES}", Place((Endpoint("10.0.0.1", 2379),), "/c", "/d", "/k")),
        ("etcd://[::1]?user=a%40b&password=/p%20q", Place((Endpoint("::1", 2379),), "", "", "", "a@b", "/p q")),
    ],
)
def test_what_is_one(text: str, found: Place) -> None:
    assert place(text) == found
    assert EtcdAddress().read(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "etcd://", "etcd:///", "http://127.0.0.1", "etcd://127.0.0.1/x", "etcd://127.0.0.1#x", "etcd://127.0.0.1,"),
        *(
            "etcd://127.0.0.1:0",
            "etcd://127.0.0.1:x",
            "etcd://127.0.0.1:65536",
            "etcd://user:secret@127.0.0.1",
            "etcd://[::1",
            "etcd://::1",
        ),
        *("etcd://127.0.0.1,127.0.0.1:2379", "etcd://127.0.0.1?what=1", "etcd://127.0.0.1?ca=/a&ca=/b", "etcd://127.0.0.1?ca"),
        *("etcd://127.0.0.1?ca=relative", "etcd://127.0.0.1?ca=/c&cert=/d", "etcd://127.0.0.1?cert=/d&key=/k", "etcd://127.0.0.1?user=a"),
        *("etcd://127.0.0.1?password=/p", "etcd://a b", "etcd://\xe4.example.com?ca=/c", "etcd://a_b?ca=/c", "etcd://[::g]"),
        *("etcd://127.0.0.1:065535", "etcd://127.0.0.1:+1", "etcd://[::1]1", "etcd://[fe80::1%eth0]?ca=/c", "etcd://127.0.0.1?ca=/c%0a"),
        *(
            "etcd://127.0.0.1?ca=/c%",
            "etcd://127.0.0.1?ca=/c%2",
            "etcd://127.0.0.1?ca=/c% 2",
            "etcd://127.0.0.1?ca=/c%ff",
            "etcd://127.0.0.1?&",
        ),
        f"etcd://127.0.0.1?ca=/{'c' * 4096}",
        *("etcd://" + ",".join(f"127.0.0.{number}" for number in range(17)), "etcd://127.0.0.1\n", "etcd://*?ca=/c"),
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(HostRefused):
        place(text)
    if text:  # in settings: a file
        with pytest.raises(ValueError, match=r"\A\Z"):
            EtcdAddress().read(text)


@pytest.mark.parametrize("text", ["fd00::1:2379", "10.0.0.1,fd00::2", "2001:db8::1"])
def test_an_ipv6_address_stands_in_brackets(text: str) -> None:
    with pytest.raises(HostRefused, match=r"an IPv6 address stands in brackets, \[2001:db8::1\]:2379"):
        place(f"etcd://{text}?ca=/c")
    with pytest.raises(ValueError, match=r"\A\Z"):
        EtcdAddress().read(f"etcd://{text}?ca=/c")


@pytest.mark.parametrize("host", ["10.0.0.1", "[2001:db8::1]", "a.example.com", "127.0.0.1.example.com", "0.0.0.0", "127.0.0.1,10.0.0.1"])
def test_nothing_goes_to_another_machine_in_the_clear(host: str) -> None:
    with pytest.raises(HostRefused, match="without TLS"):
        place(f"etcd://{host}")
    with pytest.raises(ValueError, match=r"\A\Z"):
        EtcdAddress().read(f"etcd://{host}")
    assert place(f"etcd://{host}?ca=/c").ca == "/c"


@given(st.text(max_size=60) | st.text(st.sampled_from("[]:,.%/?&=+#10afzca"), max_size=30))
def test_any_text_is_one_or_is_refused(text: str) -> None:
    """The settings take what the service takes, and nothing else."""
    for address in (text, f"etcd://{text}", f"etcd://127.0.0.1?{text}"):
        try:
            assert place(address).endpoints
        except HostRefused:
            if address:
                with pytest.raises(ValueError, match=r"\A\Z"):
                    EtcdAddress().read(address)
            continue
        assert EtcdAddress().read(address) == address


def test_the_file_of_a_password(tmp_path: Path) -> None:
    file = tmp_path / "password"
    named = Place((), user="root", password=str(file))
    for data, found in ((b"secret\n", "secret"), (b"secret\r\n", "secret"), (b" a b ", " a b "), ("\xe4".encode(), "\xe4")):
        file.write_bytes(data)
        file.chmod(0o600)
        assert password_of(named) == found
    for data in (b"", b"\n", b"a\nb\n", b"\xff", b"a\0", b"x" * (LONGEST_PASSWORD + 1)):
        file.write_bytes(data)
        with pytest.raises(HostRefused, match="no password"):
            password_of(named)
    file.write_bytes(b"secret\n")
    for mode in (0o640, 0o604, 0o660):
        file.chmod(mode)
        with pytest.raises(HostRefused, match="by others"):
            password_of(named)
    file.unlink()
    with pytest.raises(HostRefused, match="cannot read"):
        password_of(named)


def test_an_authority_counts_with_every_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says nothing of what its key is for: Python 3.13 and later refuse it by default, which would stop every service."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "etcd")]), datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
    made = builder.add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256())
    ca, pair = tmp_path / "ca.pem", tmp_path / "pair.pem"
    ca.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    own = x509.CertificateBuilder(name, x509.Name([]), key.public_key(), 2, now - timedelta(days=1), now + timedelta(days=1))
    leaf = own.add_extension(x509.SubjectAlternativeName([x509.DNSName("node1")]), True).sign(key, hashes.SHA256())
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pair.write_bytes(leaf.public_bytes(serialization.Encoding.PEM) + key.private_bytes(serialization.Encoding.PEM, *plain))
    usual = ssl.create_default_context

    def of_3_13(cafile: str) -> ssl.SSLContext:
        found = usual(cafile=cafile)
        found.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return found

    monkeypatch.setattr(ssl, "create_default_context", of_3_13)
    context, server = context_of(Place((), ca=str(ca))), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair)
    assert context is not None and context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking, answering = context.wrap_bio(here, there, server_hostname="node1"), server.wrap_bio(there, here, server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        asking.do_handshake()
    with pytest.raises(ssl.SSLWantReadError):
        answering.do_handshake()
    asking.do_handshake()


def test_files_of_tls_that_are_none(tmp_path: Path) -> None:
    assert context_of(Place(())) is None
    (tmp_path / "empty").touch()
    for ca in (tmp_path / "missing", tmp_path / "empty", tmp_path):
        with pytest.raises(HostRefused, match="cannot use the certificate"):
            context_of(Place((), ca=str(ca)))
