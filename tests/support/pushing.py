"""Let a NIC of this node be what a registry wants, as a process of its own: UUID REVISION [OPTION=VALUE]..."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from netcommon.lifecycle.context import Call, Clock, open_node
from netcommon.lifecycle.push import Pushed, push
from netcommon.log import recording
from netcommon.settings.load import load
from runtime.errors import NetcommonError
from runtime.paths import Paths
from runtime.registry_wanted import RegistryOption, RegistryWanted

ALONE = str(Path(__file__).resolve())


def pushed(uuid: str, revision: str, *words: str, network: str = "") -> Pushed:
    """Push what the words ask for, in this process."""
    options = tuple(RegistryOption(name, value) for name, _, value in (word.partition("=") for word in words))
    node = open_node(Paths(), load(Paths()), Clock())
    try:
        return push(node, uuid, RegistryWanted(revision, options, network), Call(recording()[0], node.clock.now() + 20))
    finally:
        node.store.close()
        node.host.close()


if __name__ == "__main__":
    try:
        pushed(*sys.argv[1:])
    except NetcommonError as error:
        print(error, file=sys.stderr)
        sys.exit(error.status)
