"""Find what of a registry is not on this node any more, whenever somebody asks: what the agent's comparison finds, by the same rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from netagent.sync import hands, local
from netagent.sync.reaping import found
from netagent.sync.sent import Sent

if TYPE_CHECKING:
    from netcommon.lifecycle.context import Node
    from netregistry.client import Client


class Gone(NamedTuple):
    """Wanted NICs that may go, as the registry lists them at a revision. ``problem``: why none may, "" where that can be told."""

    revision: str
    items: tuple[dict[str, Any], ...]
    problem: str = ""


def gone(node: Node, uuid: str, asked: Client) -> Gone:
    """Compare the node with its registry. ``uuid``: of the node. Raises what the client does."""
    survey = local.surveyed(node, hands.applied)
    told = {
        item["report"]["nic"]: Sent(item["report"]["state"], 0, item["report"].get("tap") or "") for item in asked.all("reports", node=uuid)
    }
    pages = list(asked.pages("nics", master=f"node:{uuid}"))
    mastered = [item for page in pages for item in page["items"]]
    what = found(uuid, survey, told, (), mastered)
    going = {stray.uuid for stray in what.strays if not node.store.elsewhere(stray.uuid)}
    items = tuple(item for item in mastered if item["nic"]["uuid"] in going)
    return Gone(pages[0]["revision"], items, what.problem or ("" if items else what.withheld))


def still(before: Gone, now: Gone) -> tuple[dict[str, Any], ...]:
    """Give those that were found by two looks, and of which nothing has changed between them."""
    at = {item["nic"]["uuid"]: item["revision"] for item in before.items}
    return tuple(item for item in now.items if at.get(item["nic"]["uuid"]) == item["revision"])
