"""A small writer of SVG 1.1: shapes and text, everything that comes from outside escaped."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from netcommon.log import printable

MONO = "'DejaVu Sans Mono',Menlo,Consolas,monospace"
SANS = "'DejaVu Sans',Verdana,Arial,sans-serif"

#: How wide a character is, in parts of the font's size: exactly so in the fixed font, about so in the other.
WIDTH = {"m": 0.602, "": 0.56, "b": 0.64}


def clip(text: str, width: float, size: float, kind: str = "", middle: bool = True) -> str:
    """``text`` on one line and, where it is too long for ``width`` pixels, without its middle: both ends tell names apart.

    ``kind``: the class of the font; not ``middle``: without its end.
    """
    text, most = printable(text), max(int(width / (size * WIDTH[kind])), 3)
    if len(text) <= most:
        return text
    end = (most - 1) // 2 if middle else 0
    return text[: most - 1 - end] + "…" + text[len(text) - end :]


class Canvas:
    """Gathers elements; ``document`` is the whole file."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def add(self, tag: str, content: object = "", **attributes: object) -> None:
        """One element; underscores in names of attributes stand for hyphens, and an attribute that is None is left out."""
        said = "".join(
            f" {name.replace('_', '-')}={quoteattr(printable(str(value)))}" for name, value in attributes.items() if value is not None
        )
        self._parts.append(f"<{tag}{said}>{content}</{tag}>" if content else f"<{tag}{said}/>")

    def rect(self, x: float, y: float, width: float, height: float, radius: float = 4, **style: object) -> None:
        self.add("rect", x=x, y=y, width=width, height=height, rx=radius, **style)

    def line(self, *points: tuple[float, float], **style: object) -> None:
        """A line through the points."""
        self.add("polyline", points=" ".join(f"{x:g},{y:g}" for x, y in points), fill="none", **style)

    def text(
        self, x: float, y: float, text: str, width: float, size: int = 11, kind: str = "", middle: bool = True, **style: object
    ) -> None:
        """One line, if any, of at most ``width`` pixels; ``x`` is where it begins, or its anchor (text_anchor), ``y`` its base line.

        ``kind``: "m" a fixed font, "b" bold, "m b" both; ``middle`` as in clip.
        """
        if not text:
            return
        shown: dict[str, object] = {"font_size": size} if size != 11 else {}
        shown |= {"class": kind} if kind else {}
        self.add("text", escape(clip(text, width, size, kind[:1], middle)), x=f"{x:g}", y=f"{y:g}", **shown, **style)

    def open(self, title: str) -> None:
        """What follows, up to ``close``, belongs together; ``title`` is shown by viewers when it is pointed at."""
        self._parts.append(f"<g><title>{escape(chr(10).join(map(printable, title.split(chr(10)))))}</title>")

    def close(self) -> None:
        self._parts.append("</g>")

    def document(self, width: int, height: int, title: str) -> str:
        """The file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="{SANS}" font-size="11">'
        )
        style = f"<style>.m{{font-family:{MONO}}}.b{{font-weight:bold}}</style>"
        back = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
        return "\n".join([head, f"<title>{escape(printable(title))}</title>", style, back, *self._parts, "</svg>", ""])
