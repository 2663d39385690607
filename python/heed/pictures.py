"""Pictures: what notebooks show and what `save` writes."""

from __future__ import annotations

import html
import os
from typing import Callable, Mapping, Union

Picture = Union[str, bytes]


def write_picture(
    path: str | os.PathLike[str], forms: Mapping[str, Callable[[], Picture]]
) -> None:
    """Writes the form that the path's end names; anything else is a ValueError, before anything is
    written."""
    name = os.fspath(path)
    kind = os.path.splitext(name)[1].lstrip(".").lower()
    if kind not in forms:
        raise ValueError(
            f"{name}: a picture's name ends in {' or '.join('.' + form for form in forms)}"
        )
    drawn = forms[kind]()
    data = drawn.encode() if isinstance(drawn, str) else drawn
    with open(name, "wb") as file:
        file.write(data)


def in_frame(page: str, height: int = 560) -> str:
    """A whole page for a notebook: in a frame, so that neither styles the other."""
    return (
        f'<iframe srcdoc="{html.escape(page, quote=True)}" '
        f'style="width:100%;height:{height}px;border:0" sandbox="allow-scripts allow-downloads">'
        "</iframe>"
    )
