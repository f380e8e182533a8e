"""Takes rules out of a guard, as nft(8) lists them: holes that the fuzz has to find."""

from __future__ import annotations

import json
from typing import NamedTuple

from tests.support.netns import run

OURS = "netcommon-"
COUNTED = ("sender", "source4", "source6")  #: chains that bound how many addresses a guest uses: the fuzz uses few


class Rule(NamedTuple):
    """One rule that stops frames, by its place."""

    family: str
    table: str
    chain: str
    handle: int
    text: str


def drops() -> list[Rule]:
    """The rules of our tables that drop something, or send it to where it is dropped; those of devices are not constant and left."""
    found = []
    for item in json.loads(run("nft", "-j", "list", "ruleset"))["nftables"]:
        rule = item.get("rule")
        if rule is None or not rule["table"].startswith(OURS) or rule["family"] != "netdev" or "hook" in rule:
            continue
        text = json.dumps(rule["expr"])
        counted = rule["chain"] in COUNTED or any(f'"target": "{chain}"' in text for chain in COUNTED)
        if stops(rule["expr"]) and not counted:
            found.append(Rule(rule["family"], rule["table"], rule["chain"], rule["handle"], text))
    return found


def stops(expressions: object) -> bool:
    """Tell whether a rule ends with a jump, a goto or a drop, itself or by a map."""
    text = json.dumps(expressions)
    return any(f'"{word}"' in text for word in ("drop", "jump", "goto"))


def delete(rule: Rule) -> None:
    """Takes it out. In JSON, since chains are called by words of nft's own."""
    gone = {"family": rule.family, "table": rule.table, "chain": rule.chain, "handle": rule.handle}
    run("nft", "-j", "-f", "-", stdin=json.dumps({"nftables": [{"delete": {"rule": gone}}]}))
