"""Make tokens, and let newcomers join by them, each once."""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from netregistry.model import keys
from netregistry.model.certificate import DAY, SET_BACK, Digest, Holding, Label, Token
from netregistry.model.codec import Between, Invalid, read, write
from netregistry.refusal import Refused
from netregistry.request import Done, Part
from netregistry.rules import nodes
from netregistry.rules.holders import JOIN, granted, named, refused

if TYPE_CHECKING:
    from netregistry.draft import Draft


class NewToken(NamedTuple):
    """A token that is to be made: ``proof`` is the hash of one that who asks has made. ``seconds``: for which it is good."""

    id: Label
    proof: Digest
    role: Holding
    name: str = ""  #: who will have joined; of a node its UUID, "" for a new one
    seconds: Annotated[float, Between(60, 2592000)] = DAY


class Joining(NamedTuple):
    """Who joins: by which token, with which key (a hash of it), and of a node what it is."""

    token: Label
    proof: Digest
    key: Digest
    node: Any = None


def add(draft: Draft, part: Part) -> Done:
    """Make a token, of which the registry has a hash alone."""
    wanted = read(NewToken, part.body)
    name = named(wanted.role, wanted.name) if wanted.name or wanted.role != "node" else ""
    key = keys.token(wanted.id)
    if draft.get(key) is not None:
        raise Refused("exists", f"there is a token {wanted.id} already", field="id")
    token = Token(wanted.id, wanted.proof, wanted.role, name, draft.now, draft.now + wanted.seconds)
    draft.put(key, token)
    return Done(201, key, _shown(token))


def revoke(draft: Draft, part: Part) -> Done:
    """Take a token back."""
    key = keys.token(part.target)
    token: Token | None = draft.get(key)
    if token is None:
        raise Refused("missing", f"there is no token {part.target!a:.40}: netcommon registry token list")
    draft.delete(key)
    return Done(200, key, _shown(token))


def _shown(token: Token) -> dict[str, Any]:
    return {name: value for name, value in write(token).items() if name != "proof"}


def known(token: Token | None, proof: str) -> Token:
    """Give a token if this is the hash of it. Raises Refused."""
    if token is None or not compare_digest(token.proof, proof):
        raise refused("token-unknown", f"there is no such token: {JOIN}", "token")
    return token


def join(draft: Draft, part: Part) -> Done:
    """Let somebody join by a token. A node that has not joined does so in the same commit; what certificates it had count no more."""
    wanted = read(Joining, part.body)
    key = keys.token(wanted.token)
    token = known(draft.get(key), wanted.proof)
    if token.used:
        raise refused("token-used", f"the token {token.id} has been used, by {token.by}: each lets one join, once: {JOIN}", "token")
    if token.until <= draft.now:
        raise refused("token-late", f"the token {token.id} has ended: {JOIN}", "token")
    if token.made > draft.now + SET_BACK:  # it would be good for as much longer
        raise refused("token-late", f"the token {token.id} was made at a time that is not yet, by a clock that was fast: {JOIN}", "token")
    name = token.name
    if token.role == "node":
        name = _node(draft, token, wanted.node)
    elif wanted.node is not None:
        raise Invalid("node", wanted.node, f"nothing: the token is for the {token.role} {token.name}")
    grant = granted(draft, token.role, name, voids=token.role == "node")
    draft.put(key, token._replace(used=draft.now, by=f"{token.role} {name}"))
    return Done(201, keys.certificate(token.role, name), write(grant))


def _node(draft: Draft, token: Token, body: Any) -> str:
    """Let the node join of which ``body`` tells, if it has not; give its UUID. Raises Refused, Invalid.

    One that has joined before joins as what it is: no other field is changed by it.
    """
    if not isinstance(body, dict):
        raise Invalid("node", body, "what the node is: its uuid and name")
    uuid = named("node", body.get("uuid", ""))
    if token.name and uuid != token.name:
        known = draft.node(token.name)
        named_so = f" ({known.name})" if known is not None else ""
        detail = (
            f"the token {token.id} is for node {token.name}{named_so}, and this is {uuid}: a token for that one, or without a name for one "
            f"that has not joined, lets it join; a machine without /var/lib/netcommon/node.json becomes the node of the token: {JOIN}"
        )
        raise Refused("token", detail, reason="token-other", node=token.name, called=known.name if known is not None else "")
    there = draft.node(uuid)
    if there is None:
        nodes.join(draft, Part("node.join", "", body))
    elif token.name:
        nodes.so_already(there, body)
    else:
        # whoever has a token for a new node must not become one that is there
        detail = f"node {uuid} has joined already: a token for it names it: netcommon registry token create node {uuid}"
        raise refused("token-other", detail, "token")
    return uuid
