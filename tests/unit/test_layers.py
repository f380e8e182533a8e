"""Imports run downward only (docs: the layout), nothing runs in a circle, and the hooks' way stays cheap."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from tests.support.bootstrap import PYTHON, ROOT
from tests.support.sources import Import, Source, imports, sources

#: From the bottom up; a module belongs to the longest prefix that fits it. Each may import its own layer and the ones it names.
LAYERS: dict[str, set[str]] = {
    "runtime": set(),
    "netcommon": set(),
    "netcommon.log": {"runtime"},
    "netcommon.trust": set(),
    "netcommon.report": set(),
    "netcommon.family": {"runtime"},
    "netcommon.runner": {"runtime", "netcommon.family"},
    "netcommon.templates": {"runtime", "netcommon.trust"},
    "netcommon.settings": {"runtime", "netcommon", "netcommon.trust"},
    "netcommon.host": {"runtime", "netcommon.trust", "netcommon.runner", "netcommon.templates"},
    "netcommon.effects": {"runtime", "netcommon.host", "netcommon.log"},
    "netcommon.extensions": set(),
    "netcommon.extending": {"runtime", "netcommon.trust"},
    "netcommon.operations": {"runtime", "netcommon.host", "netcommon.templates", "netcommon.effects", "netcommon.extending"},
    "netcommon.effects.announce": {"runtime", "netcommon.host", "netcommon.operations", "netcommon.effects"},
    "netcommon.addresses": {"runtime", "netcommon.host", "netcommon.settings"},
    "netcommon.modes": {
        "runtime",
        "netcommon.host",
        "netcommon.operations",
        "netcommon.addresses",
        "netcommon.settings",
        "netcommon.extended",
    },
    "netcommon.features": {
        "runtime",
        "netcommon.host",
        "netcommon.operations",
        "netcommon.addresses",
        "netcommon.effects",
        "netcommon.effects.announce",
        "netcommon.settings",
    },
    "netcommon.extended": {"runtime", "netcommon.extending", "netcommon.operations", "netcommon.features", "netcommon.settings"},
    "netcommon.plan": {
        "runtime",
        "netcommon.host",
        "netcommon.operations",
        "netcommon.modes",
        "netcommon.effects",
        "netcommon.features",
        "netcommon.settings",
        "netcommon.extended",
    },
    "netcommon.custom": {"runtime", "netcommon.settings", "netcommon.log", "netcommon.trust", "netcommon.runner"},
}
BELOW_LIFECYCLE = set(LAYERS)
LAYERS["netcommon.lifecycle"] = BELOW_LIFECYCLE
LAYERS["netcommon.dns"] = {"runtime", "netcommon.settings", "netcommon.log"}
LAYERS["netcommon.install"] = BELOW_LIFECYCLE | {"netcommon.lifecycle"}
LAYERS["netcommon.doctor"] = BELOW_LIFECYCLE | {"netcommon.lifecycle", "netcommon.install"}
LAYERS["netcommon.doors"] = BELOW_LIFECYCLE | {"netcommon.lifecycle", "netcommon.install", "netcommon.dns"}
LAYERS["netcommon.views"] = BELOW_LIFECYCLE | {"netcommon.lifecycle"}
LAYERS["netcommon.cli"] = LAYERS["netcommon.doors"] | {"netcommon.doctor", "netcommon.doors", "netcommon.views"}
LAYERS["netagent"] = BELOW_LIFECYCLE | {"netcommon.lifecycle", "netcommon.install", "netcommon.doors"}
LAYERS["hooks"] = {"netcommon.doors", "netcommon.install"}

#: Parts of a layer that lie in files of their own beside it.
SAME_LAYER = {
    "netcommon.settings_cache": "netcommon.settings",
    "netcommon.settings_file": "netcommon.settings",
    "netcommon.settings_schema": "netcommon.settings",
    "netcommon.options": "netcommon.settings",
    "netcommon.options_schema": "netcommon.settings",
    "netcommon.tags": "netcommon.settings",
    "netcommon.kinds": "netcommon.settings",
    "netcommon.settings_dns": "netcommon.settings",
    "netcommon.settings_agent": "netcommon.settings",
    "netcommon.settings_extensions": "netcommon.settings",
    "netcommon.settings_renames": "netcommon.settings",
    "netcommon.ours": "netcommon.custom",
}

#: Modules that no hook without a script of the site may have loaded when it starts to work: each costs milliseconds, or a fork.
DEAR = {
    *("argparse", "asyncio", "click", "dataclasses", "hashlib", "inspect", "jinja2", "logging", "pathlib", "pyroute2"),
    *("shutil", "subprocess", "tempfile", "threading", "tomllib", "traceback", "uuid"),
}

#: Who may start a process (never by a shell), with the reason.
STARTERS = {
    "netcommon.runner": "the site's scripts, ovs-ofctl, and dnsmasq for instance communication",
    "netcommon.install": "systemctl, at the administrator's command",
    "netcommon.doctor": "asks the machine's tools for their versions",
    "netcommon.cli": "at the administrator's command",
    "netcommon.doors.xen": "xenstore has only commands",
}
#: Who may make a process of itself, with the reason.
FORKING = {
    "netcommon.effects.detached": "an announcement is repeated for a second after the hook has answered",
    "netcommon.doors.lingering": "sockets whose close waits in the kernel are closed when the hook has answered",
}
STARTING = {"fork", "forkpty", "popen", "posix_spawn", "posix_spawnp", "system"}
STARTING |= {kind + end for kind in ("exec", "spawn") for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}

#: What asks the kernel for a whole table: by our own encoder, and by pyroute2's.
DUMPING = {"NLM_F_DUMP", "NLM_F_ROOT", "NLM_F_MATCH", "AF_NETLINK", "get_links", "get_routes", "get_rules", "get_neighbours"}

PRODUCT = sources("runtime", "netcommon", "netagent", "hooks")
MODULES = frozenset(source.module for source in PRODUCT)


def layer(module: str) -> str:
    """The layer of one of our modules."""
    if module in SAME_LAYER:
        return SAME_LAYER[module]
    return max((name for name in LAYERS if module == name or module.startswith(name + ".")), key=len, default="")


def ours(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in ("runtime", "netcommon", "netagent", "hooks", "tests", "examples")


def breach(source: Source, imported: Import) -> str:
    """Why ``source`` may not import it; "" where it may."""
    own, other = layer(source.module), layer(imported.module)
    if not ours(imported.module) or (other == own and other):
        return ""
    return "" if other in LAYERS[own] else f"{source.place}:{imported.line}: {own} must not import {imported.module}"


@pytest.mark.parametrize("source", PRODUCT, ids=lambda source: source.module)
def test_imports_run_downward(source: Source) -> None:
    """Imports within functions count too: they are as true a dependency."""
    assert layer(source.module) in LAYERS and source.module.split(".")[0] in ("runtime", "netcommon", "netagent", "hooks")
    assert layer(source.module) != "netcommon" or source.module == "netcommon", "name its layer at the top of this file"
    assert [why for imported in imports(source, MODULES) if (why := breach(source, imported))] == []


@pytest.mark.parametrize(
    ("own", "line", "allowed"),
    [
        ("netcommon.operations.rule", "from netcommon.host.base import Rule", True),
        ("netcommon.operations.rule", "from netcommon import plan", False),
        ("netcommon.operations.rule", "def late():\n    import netcommon.settings", False),
        ("netcommon.modes.routed", "from netcommon.settings import Settings", True),
        ("netcommon.plan", "from netcommon.lifecycle import up", False),
        ("netcommon.lifecycle.up", "from netcommon import custom", True),
        ("netcommon.lifecycle.up", "import netagent.events", False),
        ("netcommon.lifecycle.up", "import netcommon.cli.up", False),
        ("netcommon.host.linux", "from ..operations import link", False),
        ("runtime.store", "from netcommon import log", False),
        ("hooks.kvm-ifup", "from netcommon.doors.kvm import main_ifup", True),
    ],
)
def test_a_breach_is_seen(own: str, line: str, allowed: bool) -> None:
    source = Source(own, ROOT / f"{own.replace('.', '/')}.py", line, ast.parse(line))
    modules = MODULES | {"netcommon.plan", "netcommon.custom", "netcommon.log", "netcommon.lifecycle.up", "netcommon.operations.link"}
    assert [not breach(source, imported) for imported in imports(source, modules)] == [allowed]


def test_no_circles() -> None:
    """Of imports that run when a module is loaded; a part that its own module loads late is no circle."""
    graph = {
        source.module: {item.module for item in imports(source, MODULES) if item.module in MODULES and not item.late and not item.typing}
        for source in PRODUCT
    }
    assert circle(graph) == []


def circle(graph: dict[str, set[str]]) -> list[str]:
    """One circle, as the list of modules in it; [] where there is none."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str]:
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        for other in sorted(graph.get(module, set())):
            if found := walk(other, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := walk(module, []))), [])


def test_circle_finds_one() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


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
    for node in ast.walk(source.tree):
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
    if source.module in ("netcommon.host.netlink", "netcommon.host.attributes"):
        return
    if source.module == "netagent.listener":
        assert "send" not in {node.attr for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)}
        return
    names = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(source.tree) if isinstance(node, ast.Attribute)}
    names |= {alias.name for node in ast.walk(source.tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names & DUMPING == set()
