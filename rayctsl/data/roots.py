"""Where datasets live: a local folder, or a pyarrow filesystem such as S3 with a local copy per node.

Both kinds answer the same calls: `names` lists the complete datasets, `describe` tells about one, `fetch` gives its
local folder, `publish` makes one, and `where` names the place without its credentials.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rayctsl.data.local_root import LocalRoot

if TYPE_CHECKING:
    from rayctsl.data.remote_root import RemoteRoot

    Root = LocalRoot | RemoteRoot


def data_root(root: str | None = None) -> str:
    """The data root asked for, else RAYCTSL_DATA, else the user's cache."""
    return root or os.environ.get("RAYCTSL_DATA") or str(Path.home() / ".cache" / "rayctsl" / "data")


def open_root(root: str) -> Root:
    """The root behind a path or a pyarrow URI."""
    root = root.removeprefix("file://")
    if "://" not in root:
        return LocalRoot(Path(root).expanduser())
    from rayctsl.data.remote_root import RemoteRoot

    return RemoteRoot(root)


def absolute_root(root: str | None = None) -> str:
    """The data root in words that mean the same in every folder and environment: an absolute path, or the URI."""
    chosen = data_root(root).removeprefix("file://")
    return chosen if "://" in chosen else str(Path(chosen).expanduser().absolute())


def root_to_keep(root: str | None) -> str | None:
    """The absolute root as a file may have it.

    None for a URI from the environment that has credentials in it: the nodes' own environment must have them.
    """
    from rayctsl.data.remote_root import without_credentials

    chosen = absolute_root(root)
    return chosen if root is not None or without_credentials(chosen) == chosen else None
