"""Imports run downward only (docs: the layout), nothing runs in a circle, and the hooks' way stays cheap."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from netcommon.operations.kinds import KINDS
from tests.support.bootstrap import PYTHON, ROOT
from tests.support.loads import DEAR
from tests.support.rooms import PRODUCT, circle, neighbours
from tests.support.sources import Source, imports, nodes

#: Who may start a process (never by a shell), with the reason.
STARTERS = {
    "netcommon.process.run": "the site's scripts, ovs-ofctl, and dnsmasq for instance communication",
    "netcommon.install": "systemctl, at the administrator's command",
    "netcommon.doctor": "asks the machine's tools for their versions",
    "netcommon.cli": "at the administrator's command",
    "netcommon.doors.xen": "xenstore has only commands",
    "mockcloud.processes": "an etcd and the service over it, which end with the mock cloud, and programs that an administrator names",
}
#: Who may make a process of itself, with the reason.
FORKING = {
    "netcommon.effects.background": "an announcement is repeated for a second after the hook has answered",
    "netcommon.doors.deferred_close": "sockets whose close waits in the kernel are closed when the hook has answered",
}
STARTING = {"fork", "forkpty", "popen", "posix_spawn", "posix_spawnp", "system"}
STARTING |= {kind + end for kind in ("exec", "spawn") for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}

#: What asks the kernel for a whole table: by our own encoder, and by pyroute2's.
DUMPING = {"NLM_F_DUMP", "NLM_F_ROOT", "NLM_F_MATCH", "AF_NETLINK", "get_links", "get_routes", "get_rules", "get_neighbours"}

MODULES = frozenset(source.module for source in PRODUCT)

#: What each of the packages may import of ours; within them no table says it, but that nothing runs in a circle.
PACKAGES = {"runtime": ("runtime",), "netcommon": ("runtime", "netcommon"), "netagent": ("runtime", "netcommon", "netagent")}
#: The registry takes what a NIC's options and values may be from the library, and nothing that touches a host.
PACKAGES["netregistry"] = ("runtime", "netregistry", "netcommon.options.tags", "netcommon.settings.types", "netcommon.process.notify")
PACKAGES["netregistry"] += ("netcommon.process.socket_file", "netcommon.settings.etcd_address")
#: And how one speaks with a DNS server.
PACKAGES["netregistry"] += tuple(f"netcommon.dns.{module}" for module in ("key", "library", "names", "server"))
#: Its side on the node takes what a registry's objects are, and its client; nothing of the service.
PACKAGES["netagent"] += ("netregistry.client", "netregistry.model", "netregistry.request", "netregistry.rules.masters")
PACKAGES["netagent"] += ("netregistry.credentials", "netregistry.reach")
PACKAGES["mockcloud"] = ("runtime", "netcommon", "netagent", "netregistry", "mockcloud")
PACKAGES["hooks"] = ("netcommon.doors", "netcommon.install")


def ours(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in (
        "runtime",
        "netcommon",
        "netagent",
        "netregistry",
        "mockcloud",
        "hooks",
        "tests",
        "examples",
    )


def with_import(module: str, line: str) -> list[Source]:
    """The product, of which ``module`` has one more line."""
    return [
        Source(source.module, source.path, source.text, ast.parse(f"{source.text}\n{line}\n")) if source.module == module else source
        for source in PRODUCT
    ]


def test_no_circles() -> None:
    """Neither of files nor of folders, at any depth; what is imported late, or for the type checker alone, counts too."""
    assert circle(neighbours()) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("netcommon.operations.rule", "from netcommon.plan.planner import plan"),
        ("netcommon.operations.rule", "def late():\n    import netcommon.lifecycle.up"),
        ("netcommon.plan.planner", "from netcommon.lifecycle import up"),
        ("netcommon.lifecycle.context", "import netcommon.cli.app"),
        ("netcommon.host.rtnetlink.read", "if TYPE_CHECKING:\n    from netcommon.host.linux.host import LinuxHost"),
        ("netcommon.host.linux.views", "def late():\n    from netcommon.host.linux.host import LinuxHost"),
        ("netcommon.host.linux.host", "from ...operations import link"),
        ("netcommon.settings.model", "from netcommon.settings.load import load"),
        ("netcommon.options.model", "if TYPE_CHECKING:\n    from netcommon.settings.model import Settings"),
        ("netagent.sources.inotify", "from netagent.reap.reaper import Reaper"),
        ("runtime.paths", "from runtime.store import Store"),
    ],
)
def test_a_circle_is_seen(module: str, line: str) -> None:
    assert circle(neighbours(with_import(module, line))) != []


def test_circle_finds_one() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize("source", PRODUCT, ids=lambda source: source.module)
def test_packages_stand_on_each_other(source: Source) -> None:
    """Hooks go through doors, and nobody but itself imports the agent, nor any part of the product its tests."""
    allowed = PACKAGES[source.module.split(".", maxsplit=1)[0]]
    found = [item.module for item in imports(source, MODULES) if ours(item.module)]
    assert [name for name in found if not any(name == one or name.startswith(one + ".") for one in allowed)] == []


#: What the registry's core must not have: its time, chance and input come from its caller.
IMPURE = {
    "asyncio",
    "datetime",
    "os",
    "random",
    "secrets",
    "select",
    "selectors",
    "socket",
    "sqlite3",
    "ssl",
    "threading",
    "time",
    "pathlib",
}


def test_the_registrys_core_has_no_input_and_output() -> None:
    """Its shells have: the stores, what copies and moves one, and what runs the core on one, or on a copy of one."""
    shells = ("netregistry.stores", "netregistry.local", "netregistry.rehearsal", "netregistry.service", "netregistry.client")
    shells += ("netregistry.importer.source", "netregistry.importer.watch", "netregistry.authority", "netregistry.credentials")
    shells += ("netregistry.joining", "netregistry.reach", "netregistry.transfer", "netregistry.moving", "netregistry.pages.front")
    shells += ("netregistry.certified_client",)
    pure = [source for source in PRODUCT if source.module.startswith("netregistry") and not source.module.startswith(shells)]
    assert len(pure) > 20
    found = {item.module.partition(".")[0] for source in pure for item in imports(source)}
    assert found & IMPURE == set()
    loading = "netregistry.core, netregistry.leader, netregistry.stream, netregistry.state"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {loading}; print(any('netcommon.host' in name for name in sys.modules))"
    assert subprocess.run([PYTHON, "-IS", "-c", code], capture_output=True, check=True, text=True).stdout.strip() == "False"


def test_every_file_is_in_a_room() -> None:
    """Only what everybody uses lies in netcommon/ itself."""
    names = [source.module.removeprefix("netcommon.") for source in PRODUCT if source.path.parent == ROOT / "netcommon"]
    assert sorted(names) == ["extension_loader", "log", "moved_names", "netcommon"]


@pytest.mark.parametrize("hook", [source.path for source in PRODUCT if source.module.startswith("hooks.")], ids=lambda path: path.name)
def test_a_hook_starts_cheaply(hook: Path) -> None:
    """All that the way of one NIC imports, early or late, with the interpreter as hooks run it; what is dear is not among it."""
    starting = [item.module for item in imports(next(one for one in PRODUCT if one.path == hook)) if ours(item.module)]
    code = f"import sys, json; sys.path.insert(0, {str(ROOT)!r})\n" + "".join(f"import {name}\n" for name in starting)
    code += "print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([PYTHON, "-IS", "-c", code], capture_output=True, check=True, text=True).stdout)
    assert set(loaded) & DEAR == set()


@pytest.mark.parametrize("source", PRODUCT, ids=lambda source: source.module)
def test_who_starts_processes(source: Source) -> None:
    """No shell anywhere; subprocess and its kin only where STARTERS says; os.exec only to hand over to another program for good."""
    found = []
    for item in imports(source):
        if item.module in ("subprocess", "pty", "commands", "multiprocessing") and not may_start(source.module):
            found.append(f"{source.place}:{item.line}: {item.module}")
    for node in nodes(source):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os" and node.attr in STARTING:
            handing_over = node.attr.startswith("exec") and source.module.startswith(("netcommon.install", "netcommon.doors"))
            forking = node.attr == "fork" and source.module in FORKING
            found += [] if handing_over or forking else [f"{source.place}:{node.lineno}: os.{node.attr}"]
        if isinstance(node, ast.keyword) and node.arg == "shell":
            found.append(f"{source.place}:{node.value.lineno}: shell=")
    assert found == []


def may_start(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in STARTERS)


@pytest.mark.parametrize("source", PRODUCT, ids=lambda source: source.module)
def test_dumps_go_through_the_retry_wrapper(source: Source) -> None:
    """A dump that the kernel interrupted must be taken again (NLM_F_DUMP_INTR): one module does that, and is the only one to ask.

    The agent's listener has a socket, and asks nothing.
    """
    if source.module in ("netcommon.host.rtnetlink.socket", "netcommon.host.rtnetlink.attributes"):
        return
    if source.module == "netagent.sources.listener":
        assert "send" not in {node.attr for node in nodes(source) if isinstance(node, ast.Attribute)}
        return
    names = {node.id for node in nodes(source) if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes(source) if isinstance(node, ast.Attribute)}
    names |= {alias.name for node in nodes(source) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names & DUMPING == set()


def kinds_named(tree: ast.AST) -> list[str]:
    """The kinds of operations that a module names: by their class, or by their KIND."""
    named = [
        f"{node.module}.{each.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("netcommon.operations.") and node.module != BASE
        for each in node.names
        if each.name[:1].isupper() and not each.name.isupper()
    ]
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return named + [text for text in texts if text in KINDS]


BASE = "netcommon.operations.base"


def test_the_lifecycle_names_no_kind() -> None:
    """What is special about a kind of operation is said by the kind."""
    found = {source.module: kinds_named(source.tree) for source in PRODUCT if source.module.startswith("netcommon.lifecycle.")}
    assert len(found) > 20 and {module: kinds for module, kinds in found.items() if kinds} == {}
    assert kinds_named(ast.parse("from netcommon.operations.bridge import BridgePort\nKINDS = ('file',)")) == [
        "netcommon.operations.bridge.BridgePort",
        "file",
    ]
