"""Paths below another root folder: a system that is being built, or a test. Symbolic links lead where they would lead in it."""

from __future__ import annotations

import os

from runtime.errors import HostRefused


def outside(root: str, path: str) -> str:
    """The absolute ``path`` of the system below ``root``, as we see it from outside."""
    return root.rstrip("/") + path


def placed(root: str, path: str) -> str:
    """Follow the links of the folders of ``path`` inside ``root``; leave its last name as it is, also where that is a link.

    What is written there stays in the folder that the path names. Raises HostRefused for links in a circle, and where a link
    leads to a folder that is not there: nobody has said that it is to be made.
    """
    folder = "/"
    for part in os.path.dirname(path).strip("/").split("/"):
        here = folder = os.path.join(folder, part)
        if os.path.islink(outside(root, here)):
            folder = resolved(root, here)
            if not os.path.lexists(outside(root, folder)):
                raise HostRefused(f"{here} leads to {folder}, which is not there")
    return os.path.join(folder, os.path.basename(path))


def resolved(root: str, path: str) -> str:
    """``path`` with every symbolic link followed inside ``root``, the last one too; what is missing stays as it is.

    Raises HostRefused for links in a circle.
    """
    done = "/"
    left = [part for part in path.split("/") if part][::-1]
    followed = 0
    while left:
        part = left.pop()
        if part == ".":
            continue
        if part == "..":
            done = os.path.dirname(done)
            continue
        here = os.path.join(done, part)
        try:
            target = os.readlink(outside(root, here))
        except OSError:
            done = here
            continue
        followed += 1
        if followed > 40:
            raise HostRefused(f"{path}: symbolic links in a circle")
        if target.startswith("/"):
            done = "/"
        left += [piece for piece in target.split("/") if piece][::-1]
    return done
