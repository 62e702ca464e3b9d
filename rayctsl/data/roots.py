"""Where datasets live: a local folder, or a pyarrow filesystem such as S3 with a local copy per node.

Both kinds answer the same calls: `names` lists the complete datasets, `describe` tells about one, `fetch` gives its
local folder, `publish` makes one, and `where` names the place without its credentials.
"""

from __future__ import annotations

import os
from pathlib import Path

from rayctsl.data.local_root import LocalRoot
from rayctsl.data.remote_root import RemoteRoot, without_credentials

Root = LocalRoot | RemoteRoot


def data_root(root: str | None = None) -> str:
    """The data root asked for, else RAYCTSL_DATA, else the user's cache."""
    return root or os.environ.get("RAYCTSL_DATA") or str(Path.home() / ".cache" / "rayctsl" / "data")


def open_root(root: str) -> Root:
    """The root behind a path or a pyarrow URI."""
    root = root.removeprefix("file://")
    return RemoteRoot(root) if "://" in root else LocalRoot(Path(root).expanduser())


def everywhere(root: str | None) -> str | None:
    """The same root in words that mean the same on every node: an absolute path, or the URI.

    None for a URI from the environment that has credentials in it, which are not for files: the nodes' own environment
    must have them.
    """
    chosen = data_root(root).removeprefix("file://")
    if "://" not in chosen:
        return str(Path(chosen).expanduser().absolute())
    return chosen if root is not None or without_credentials(chosen) == chosen else None
