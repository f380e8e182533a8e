"""List the NICs of a whole cluster, as the registry knows them: what is wanted of each, and what its node has of that."""

from __future__ import annotations

from netcommon.cli.app import App
from netcommon.cli.registry_client import Item, client, show_list, text, whole
from runtime import membership

HEADINGS = ("NIC", "STATE", "NODES", "MAC", "ADDRESSES", "WANTED", "APPLIED", "NOTE", "UUID")


def show_cluster(app: App, as_json: bool) -> None:
    """Print the NICs of this node's cluster; of all, where it has joined none, or that has no name.

    Raises HostRefused, TryAgain and netregistry.client.Problem where the registry does not answer.
    """
    me = membership.read(app.paths)
    with client(app) as asked:
        cluster = str(asked.get(f"nodes/{me.uuid}").body["node"]["cluster"]) if me is not None else ""
        items, revision = whole(asked, "nics", **({"cluster": cluster} if cluster else {}))
        names = {each["node"]["uuid"]: each["node"]["name"] for each in asked.all("nodes")}

    def row(item: Item) -> tuple[str, ...]:
        one, shown = item["nic"], item["shown"]
        addresses = " ".join(filter(None, (one["ip"], *one["addresses"])))
        nodes = " ".join(names.get(uuid, uuid) for uuid in shown["nodes"])
        # of one epoch, as the rule: its name says nothing to people
        revisions = [str(each).rpartition(":")[2] for each in (item["revision"], shown["applied"])]
        return item["label"], shown["state"], nodes, one["mac"], addresses, *revisions, _note(item), one["uuid"]

    show_list(sorted(items, key=row), revision, HEADINGS, row, as_json, "the registry knows no NIC of this cluster")


def _note(item: Item) -> str:
    """Say why a NIC is not as it is wanted."""
    shown = item["shown"]
    restart = f"needs a restart for {text(shown['pending'])}" if shown["pending"] else ""
    drift = f"drifted: {text(shown['drift'])}" if shown["drift"] else ""
    return "; ".join(filter(None, (restart, f"refused: {shown['refused']}" if shown["refused"] else "", drift)))
