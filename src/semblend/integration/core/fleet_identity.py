"""What must be equal before replicas may share KV: a namespace without what only concerns one host.

Paths, file times, block size, cache layout and parallel layout are left out; weights count by their content. The
tokenizer does not matter: tokens are compared as ids, and KV is a function of them and of the weights.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Final

from semblend.contract.model_folder import model_files
from semblend.contract.namespace import Namespace
from semblend.fleet.donor_object import RowShape
from semblend.fleet.weights import weights_digest
from semblend.integration.core.namespace import canonical

_OF_ONE_HOST: Final = ("name", "path", "files")


def model_content(namespace: Namespace) -> str | None:
    """The model by its content; None where that is not known. Reads all weights: seconds to minutes."""
    if not isinstance(namespace.model, str):
        return None
    facts = json.loads(namespace.model)
    name, path = facts["name"], facts.get("path")
    if path is None:
        if not isinstance(namespace.revision, str):
            return None
        content = f"{name}@{namespace.revision}"
    else:
        try:
            digest = weights_digest(model_files(Path(path)))
        except OSError:
            return None
        if digest is None:
            return None
        content = digest
    return canonical({fact: facts[fact] for fact in facts if fact not in _OF_ONE_HOST} | {"weights": content})


def space_identity(namespace: Namespace, content: str, shape: RowShape) -> str | None:
    """The identity of a space of the fleet: one tenant under one model. None: nothing of it may be shared.

    Requests with an adapter are not shared: an adapter is known by its path only.
    """
    if not namespace.is_known or namespace.lora is not None:
        return None
    own = {"tenant": namespace.tenant, "dtype": namespace.dtype, "rope": namespace.rope}
    return canonical({"model": content, "shape": dataclasses.asdict(shape)} | own)
