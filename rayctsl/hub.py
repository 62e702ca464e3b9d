"""Folders of initializations and fine-tuned models to and from a model hub (huggingface_hub, an extra).

A repository is written `hf-hub:<owner>/<name>` or `hf-hub:<owner>/<name>@<revision>`. HF_ENDPOINT names another hub
than the public one, such as a service of ours; HF_TOKEN is the right to write.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from rayctsl.words import one_line

PREFIX = "hf-hub:"
FILES = ("phi.safetensors", "card.json", "model.safetensors", "model.json", "README.md")
NOTES = ".cache/huggingface/download"  # the hub's library keeps them in every folder that it downloads into
_NAME = re.compile(r"(?:hf-hub:)?([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")


def parse(name: str) -> tuple[str, str | None]:
    """Repository and revision. Example: parse("hf-hub:org/name@v1") == ("org/name", "v1")"""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not a repository's name: write hf-hub:<owner>/<name> or …@<revision>")
    return match[1], match[2]


def download(name: str, target: str | Path | None = None) -> Path:
    """Fetch a repository's files and return their folder: `target`, or one of the hub's own cache."""
    repository, revision = parse(name)
    hub = _library()
    try:
        path = hub.snapshot_download(
            repository,
            revision=revision,
            endpoint=os.environ.get("HF_ENDPOINT"),
            local_dir=None if target is None else str(target),
            allow_patterns=list(FILES),
            tqdm_class=None,
        )
    except (hub.errors.RepositoryNotFoundError, hub.errors.RevisionNotFoundError):
        raise ValueError(f"the hub has no repository {name} that you may read") from None
    except hub.errors.HfHubHTTPError as error:
        raise ConnectionError(f"the hub refused {name}: {one_line(error)}") from None
    except OSError as error:
        raise ConnectionError(f"the hub cannot be reached for {name}: {one_line(error)}") from None
    return Path(path)


def upload(folder: str | Path, name: str, *, private: bool = False, message: str = "Upload") -> str:
    """Make the repository if it is missing, commit the folder's files, and return the commit's address."""
    repository, revision = parse(name)
    here = Path(folder)
    present = [file for file in FILES if (here / file).is_file()]
    if not {"card.json", "model.json"} & set(present):
        raise ValueError(f"{folder} is neither an initialization nor a fine-tuned model: it has no card")
    hub = _library()
    api = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=str(here),
            revision=revision,
            allow_patterns=present,
            commit_message=message,
        )
    except hub.errors.HfHubHTTPError as error:
        raise ConnectionError(f"the hub refused {name}: {one_line(error)}") from None
    except (OSError, RuntimeError, hub.errors.HTTPError) as error:
        raise ConnectionError(f"the hub cannot be reached for {name}: {one_line(error)}") from None
    return str(commit.commit_url)


def _library() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ModuleNotFoundError:
        raise ValueError("hubs need one more library: pip install 'rayctsl[hub]'") from None
    return huggingface_hub
