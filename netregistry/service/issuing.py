"""Sign certificates for those to whom the registry's rules grant them; in the registry's turn."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from netregistry.authority import GET_IT, LIBRARY
from netregistry.model import keys
from netregistry.model.certificate import Grant, Label
from netregistry.model.codec import Text, read, write
from netregistry.refusal import Refused
from netregistry.rules import tokens
from netregistry.rules.holders import authorities, signing
from netregistry.service.answers import Issued

if TYPE_CHECKING:
    from collections.abc import Callable

    from netregistry.authority.x509 import Requested
    from netregistry.local import Local
    from netregistry.model.certificate import Credential
    from netregistry.request import Call, Response

    Ask = Callable[[Call], Response]  # as who it is, and for as long as his certificate counts


def _any(text: str) -> str:
    return text


class Join(NamedTuple):
    """Who joins: by which token and its secret, with which key (PKCS #10, PEM), and of a node its ``uuid``, ``name`` and so on."""

    token: Label
    secret: Annotated[str, Text(_any, "what stands behind the first point of a token")]
    request: Annotated[str, Text(_any, "a certificate signing request, in PEM")]
    node: Any = None


class NewAuthority(NamedTuple):
    """An authority's certificate (PEM), and the one of the same key that the authority before it has signed.

    ``alone``: those before count no more from the same commit on; their keys are somebody else's.
    """

    certificate: str
    cross: str = ""
    alone: bool = False


class Issuer:
    """Sign for who asks. ``keys``: the folder of the authorities' keys."""

    def __init__(self, local: Local, keys: str) -> None:
        self._local, self.keys = local, keys

    def join(self, call: Call, ask: Ask) -> Response:
        """Let somebody join by a token. Raises Refused, Invalid; Unavailable."""
        wanted = read(Join, call.body)
        self._local.catch_up()
        tokens.known(self._local.view.get(keys.token(wanted.token)), proof(wanted.secret))  # strangers have nothing else looked at
        requested: Requested = _x509().read_request(wanted.request)
        body = {"token": wanted.token, "proof": proof(wanted.secret), "key": requested.digest, "node": wanted.node}
        return self._issued(call._replace(body=body), ask, requested)

    def renew(self, call: Call, one: Credential | None, certificate: bytes, ask: Ask) -> Response:
        """Give who has a certificate (``certificate``: DER) another one for the same key. Raises Refused, Invalid; Unavailable."""
        if one is None:
            raise Refused("forbidden", "there is no certificate to renew: over the UNIX socket root needs none")
        requested: Requested = _x509().key_of(certificate)
        return self._issued(call._replace(body={"key": requested.digest, "serial": one.serial, "authority": one.authority}), ask, requested)

    def add(self, call: Call, ask: Ask) -> Response:
        """Take in an authority. Raises Refused, Invalid; Unavailable."""
        wanted = read(NewAuthority, call.body)
        found = _x509().read_authority(wanted.certificate, wanted.cross)
        return ask(call._replace(body={**write(found), "alone": wanted.alone}))

    def has_signed(self, label: str, certificate: bytes) -> bool:
        """Tell whether the key of an authority that is there has itself signed a certificate (DER). Raises Refused."""
        there = self._local.view.get(keys.authority(label))
        return there is not None and bool(_x509().has_signed(there.certificate, certificate))

    def _issued(self, call: Call, ask: Ask, requested: Requested) -> Response:
        local = self._local
        local.catch_up()
        now = local.core.now()
        signs = signing(local.view, now)
        _x509().check(signs, self._key(signs.id))  # nothing is granted, and no token used up, that cannot be signed here
        response = ask(call)
        if response.status >= 400 or call.dry_run:
            return response
        grant = read(Grant, response.body)
        certificate = _x509().sign(grant, requested.key, self._key(grant.authority))
        there = tuple(each.certificate for each in authorities(local.view, now))
        return response._replace(body=write(Issued(*grant, certificate=certificate, authorities=there)))

    def _key(self, label: str) -> str:
        from netregistry.authority import key_files

        found = key_files.key(self.keys, label) if self.keys else ""
        if not found:
            raise Refused("unavailable", f"the key of authority {label} is not on this machine: ask a service that has it", retry_after=5)
        return found


def proof(secret: str) -> str:
    """Give what is kept of a token's secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _x509() -> Any:
    try:
        from netregistry.authority import x509
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != LIBRARY:
            raise
        raise Refused("unavailable", f"this service signs nothing, for it needs {LIBRARY}: {GET_IT}") from None
    return x509
