"""Make and read X.509 certificates (RFC 5280), with keys on the curve P-256.

A certificate says who its holder is by a URI among its alternative names, urn:netcommon:ROLE:NAME, and by the name of its issuer which
authority has signed it. Those of holders are for clients alone, those of services for servers alone: no node passes for a service.
"""

from __future__ import annotations

import ipaddress
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from netregistry.model.certificate import ISSUER, SET_BACK, URN, Authority
from netregistry.model.codec import Invalid
from runtime.errors import HostRefused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netregistry.model.certificate import Grant

YEARS = 10  #: for which an authority is good
YEAR = 31557600.0
SERVICE = 2592000.0  #: seconds for which a service's certificate is good; it makes another one long before
LONGEST = 16 << 10  #: characters of what is sent by others
PEM = serialization.Encoding.PEM

Key = ec.EllipticCurvePrivateKey


class Made(NamedTuple):
    """An authority that was made, and its key."""

    authority: Authority
    key: str


class Requested(NamedTuple):
    """A public key, whose private one the sender has, and the SHA-256 of it."""

    key: ec.EllipticCurvePublicKey
    digest: str


# -- authorities


def make_authority(now: float, before: tuple[Authority, str] | None = None) -> Made:
    """Make an authority. ``before``: the one that counts now, and its key, which signs that this one follows it."""
    label, key = secrets.token_hex(4), _new_key()
    until = now + YEARS * YEAR
    own = _authority(label, key.public_key(), label, key, now, until)
    cross = ""
    if before is not None:
        cross = _pem(_authority(label, key.public_key(), before[0].id, _key(before[1]), now, min(until, before[0].until)))
    return Made(Authority(label, own.fingerprint(hashes.SHA256()).hex(), _pem(own), cross, now, until), _key_pem(key))


def read_authority(certificate: str, cross: str = "") -> Authority:
    """Read an authority that somebody else has made. Raises Invalid."""
    found = _read(certificate, "certificate")
    names = [str(each.value) for each in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if len(names) != 1 or not names[0].startswith(ISSUER):
        raise Invalid("certificate", certificate[:80], "one that netcommon registry authority rotate has made")
    if cross and _public(_read(cross, "cross")) != _public(found):
        raise Invalid("cross", cross[:80], "a certificate of the same key")
    return Authority(names[0].removeprefix(ISSUER), found.fingerprint(hashes.SHA256()).hex(), _pem(found), cross, 0.0, _until(found))


def check(authority: Authority, key: str) -> None:
    """Raise HostRefused where a key is not the authority's."""
    if _public(_read(authority.certificate, "certificate")) != _der(_key(key).public_key()):
        raise HostRefused(f"the key of authority {authority.id} is another one's", "put it back from a copy")


def has_signed(authority: str, certificate: bytes) -> bool:
    """Tell whether the key of an authority (PEM) has itself signed a certificate (DER), with no other authority in between."""
    key = _read(authority, "certificate").public_key()
    try:
        found = x509.load_der_x509_certificate(certificate)
        if not isinstance(key, ec.EllipticCurvePublicKey) or found.signature_hash_algorithm is None:
            return False
        key.verify(found.signature, found.tbs_certificate_bytes, ec.ECDSA(found.signature_hash_algorithm))
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _authority(label: str, key: ec.EllipticCurvePublicKey, by: str, signer: Key, now: float, until: float) -> x509.Certificate:
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    own = label == by
    return (
        _begun(ISSUER + label, key, by, signer.public_key(), now - SET_BACK, until, x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=True, path_length=1 if own else 0), critical=True)
        .add_extension(usage, critical=True)
        .sign(signer, hashes.SHA256())
    )


# -- keys and requests


def make_key() -> str:
    """Make a private key."""
    return _key_pem(_new_key())


def make_request(key: str) -> str:
    """Make a request for a certificate of this key: it shows that who sends it has the key."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(_key(key), hashes.SHA256()).public_bytes(PEM).decode("ascii")


def read_request(text: str) -> Requested:
    """Read a request for a certificate; nothing of it counts but its key. Raises Invalid."""
    try:
        if len(text) > LONGEST:
            raise ValueError
        found = x509.load_pem_x509_csr(text.encode("ascii"))
        requested = _requested(found.public_key(), "request")  # before its signature: a key of another kind may take long to check
        if not found.is_signature_valid:
            raise ValueError
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Invalid("request", text[:80], "a certificate signing request (PKCS #10), in PEM") from None
    return requested


def key_of(certificate: bytes) -> Requested:
    """Give the key that a certificate (DER) is for. Raises Invalid."""
    return _requested(x509.load_der_x509_certificate(certificate).public_key(), "certificate")


def _requested(key: Any, field: str) -> Requested:
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise Invalid(field, type(key).__name__, "a key on the curve P-256")
    digest = hashes.Hash(hashes.SHA256())
    digest.update(_der(key))
    return Requested(key, digest.finalize().hex())


# -- certificates


def sign(grant: Grant, key: ec.EllipticCurvePublicKey, signer: str) -> str:
    """Give the certificate that a grant tells of. ``signer``: the authority's key."""
    authority = _key(signer)
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"{URN}{grant.role}:{grant.name}")])
    made = _begun(grant.role, key, grant.authority, authority.public_key(), grant.since, grant.until, int(grant.serial, 16))
    return _pem(_leaf(made, names, ExtendedKeyUsageOID.CLIENT_AUTH).sign(authority, hashes.SHA256()))


def make_service(names: Iterable[str], authority: Authority, signer: str, now: float) -> tuple[str, float]:
    """Make a key and a certificate for a service under these names and addresses, in one PEM; give that, and when the certificate ends."""
    key, by = _new_key(), _key(signer)
    until = min(now + SERVICE, authority.until)
    made = _begun("service", key.public_key(), authority.id, by.public_key(), now - SET_BACK, until, x509.random_serial_number())
    found = _leaf(made, x509.SubjectAlternativeName([_name(name) for name in names]), ExtendedKeyUsageOID.SERVER_AUTH)
    return _key_pem(key) + _pem(found.sign(by, hashes.SHA256())) + authority.cross, until


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _leaf(builder: x509.CertificateBuilder, names: x509.SubjectAlternativeName, purpose: Any) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(names, critical=False)
    )


def _begun(
    subject: str, key: ec.EllipticCurvePublicKey, by: str, signer: ec.EllipticCurvePublicKey, since: float, until: float, serial: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(_named(ISSUER + by))
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(datetime.fromtimestamp(int(since), UTC))
        .not_valid_after(datetime.fromtimestamp(int(until), UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


# -- PEM


def _new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def _key(text: str) -> Key:
    try:
        found = serialization.load_pem_private_key(text.encode("ascii"), None)
    except (ValueError, TypeError):
        found = None
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise HostRefused("a key cannot be read", "put it back from a copy")
    return found


def _key_pem(key: Key) -> str:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode("ascii")


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(PEM).decode("ascii")


def _read(text: str, field: str) -> x509.Certificate:
    try:
        if len(text) > LONGEST:
            raise ValueError
        return x509.load_pem_x509_certificate(text.encode("ascii"))
    except (ValueError, TypeError):
        raise Invalid(field, text[:80], "a certificate, in PEM") from None


def _public(certificate: x509.Certificate) -> bytes:
    return _der(certificate.public_key())


def _der(key: Any) -> bytes:
    return bytes(key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))


def _until(certificate: x509.Certificate) -> float:
    # the same in all versions, and without the time zone that only later ones tell
    later = getattr(certificate, "not_valid_after_utc", None)
    return float((later or certificate.not_valid_after.replace(tzinfo=UTC)).timestamp())
