"""Read templates (jinja2), ours or the site's, and fill them. Ours are below this folder, a site's own below /etc/netcommon/templates,
where the same name takes our one's place.

A name is a folder and a file, "ovs/guard.j2". What a template may include, import or extend is looked up in the same way.

    source = read("dnsmasq/network.j2", paths.templates)      whoever has a View asks that: view.template(name)
    text = render("dnsmasq/network.j2", {"network": ...}, view.template)

A template belongs to the administrator, as the scripts do; what it is given comes from users. So it runs in jinja2's sandbox, and a
name it was not given is an error.
"""

from __future__ import annotations

import os
import sys

from runtime.errors import HostRefused, TemplateInvalid
from runtime.trust import distrust
from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jinja2 import Environment

    #: The text of a template by its name. Raises TemplateInvalid where there is none that may be used.
    Source = Callable[[str], str]

SHIPPED = os.path.dirname(os.path.realpath(__file__))
CHECKOUT = os.path.dirname(os.path.dirname(SHIPPED))

#: Where jinja2 is, for a door, which runs without site-packages: so nobody's get into a root process. vendor/ is the Debian package's.
PLACES = (
    f"{CHECKOUT}/vendor",
    f"{CHECKOUT}/.venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages",
    "/usr/lib/python3/dist-packages",
)

LONGEST = 1 << 20  #: characters of a template, and of what it makes

#: What a name may be made of; a part does not begin with a dot.
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def read(name: str, site: str, shipped: str = SHIPPED) -> str:
    """The text of the template ``name``, from the folder ``site`` or from ours.

    Raises TemplateInvalid where there is none, where others than root can write the site's, and where it is no text.
    """
    if not all(part and part[0] != "." and _NAME.issuperset(part) for part in name.split("/")):
        raise TemplateInvalid(f"template {name!r}: not a name of a template")
    own = f"{site}/{name}"
    path = own if os.path.lexists(own) else f"{shipped}/{name}"
    if path == own and (reason := distrust(own)):
        raise TemplateInvalid(f"template {name} is not used: {reason}")
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read(LONGEST + 1)
    except FileNotFoundError:
        raise TemplateInvalid(f"there is no template {name}: it is not one of ours, and {own} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateInvalid(f"template {path} cannot be read: {error}") from None
    if len(text) > LONGEST:
        raise TemplateInvalid(f"template {path} is too long")
    return text


def render(name: str, variables: Mapping[str, object], source: Source) -> str:
    """Give what the template ``name`` makes of ``variables``. Raises TemplateInvalid for whatever is wrong with it, by file and line."""
    _find()
    import jinja2

    environment = _environment(source)
    try:
        text = "".join(environment.get_template(name).generate(dict(variables)))
    except TemplateInvalid:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise TemplateInvalid(f"template {error.name or name}, line {error.lineno}: {error.message}") from None
    except Exception as error:  # a template may do whatever an expression can: divide by zero, add a number to a word
        raise TemplateInvalid(f"template {name}: {type(error).__name__}: {error}") from None
    if len(text) > LONGEST:
        raise TemplateInvalid(f"template {name} makes too long a text")
    return text


def _environment(source: Source) -> Environment:
    from jinja2 import FunctionLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(
        loader=FunctionLoader(source),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # no HTML is made here; who uses the text checks it
    )


def _find() -> None:
    """Makes ``import jinja2`` work. Raises HostRefused where there is none."""
    for place in ("", *PLACES):
        if place and place not in sys.path:
            sys.path.append(place)
        try:
            import jinja2  # noqa: F401
        except ImportError:
            continue
        return
    raise HostRefused("there is no jinja2", "install Debian's python3-jinja2, or run tests/setup runtime in the checkout")
