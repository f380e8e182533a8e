"""Templates as a host has them: the site's below its folder, and ours."""

from __future__ import annotations

from runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from netcommon.host.linux import LinuxHost


class TemplateView:
    """A view's templates."""

    _host: LinuxHost

    def template(self, name: str) -> str:
        from netcommon.templates import read  # few NICs need one

        return read(name, self._host.paths.templates)
