"""A fine-tuned model as one safetensors file that says of itself how to use it: model, classes, image size, statistics.

`save_finetuned` makes the bytes, `Finetuned.load` reads them back and predicts. Nothing here ever unpickles a file.
"""

from __future__ import annotations

import json
import struct

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from rayctsl.config import ModelConfig
from rayctsl.contract import read_contract
from rayctsl.data.batches import Normalizer
from rayctsl.data.store import SplitInfo
from rayctsl.jobs.contracts import ModelFacts
from rayctsl.models import build_model
from rayctsl.words import one_line

KEY = "rayctsl.finetuned"


def save_finetuned(module: nn.Module, model: ModelConfig, info: SplitInfo) -> bytes:
    """A module's complete state and the facts of the dataset's training split it was fine-tuned on."""
    facts = ModelFacts(
        model=model,
        dataset=info.name,
        class_names=info.class_names,
        shape=info.shape,
        mean=info.mean,
        std=info.std,
    )
    state = {name: value.detach().cpu().contiguous().clone() for name, value in module.state_dict().items()}
    # One entry only: safetensors writes several in random order, and equal models should be equal files.
    return save(state, metadata={KEY: json.dumps(facts.to_json(), sort_keys=True)})


class Finetuned:
    """A fine-tuned model, ready to classify."""

    def __init__(self, module: nn.Module, facts: ModelFacts):
        self.module, self.facts = module.eval(), facts
        statistics = SplitInfo(facts.dataset, "train", facts.shape, facts.class_names, mean=facts.mean, std=facts.std)
        self.normalize = Normalizer(statistics)

    @classmethod
    def load(cls, data: bytes) -> Finetuned:
        """Read what `save_finetuned` made; ValueError when it is anything else."""
        try:
            (size,) = struct.unpack_from("<Q", data)
            metadata = json.loads(data[8 : 8 + size]).get("__metadata__", {})
            if KEY not in metadata:
                raise ValueError("it does not say that it is a fine-tuned model")
            facts = read_contract(ModelFacts, metadata[KEY].encode(), "its description")
            model = facts.model.model_copy(update={"weights": None})
            module = build_model(model, len(facts.class_names), seed=0)
            module.load_state_dict(load(data))
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, struct.error, SafetensorError) as error:
            raise ValueError(f"this is not a fine-tuned model's file: {one_line(error, 200)}") from None
        return cls(module, facts)

    @torch.no_grad()
    def probabilities(self, images: np.ndarray) -> torch.Tensor:
        """Of every class [N, classes], for uint8 images [N, H, W, C] of the model's shape."""
        # A copy: arrays of Pillow are read-only, which torch warns of.
        return self.module(self.normalize(np.array(images))).softmax(1)

    def predict(self, image: np.ndarray) -> list[tuple[str, float]]:
        """Class names with probabilities, likeliest first, of one uint8 image of the model's shape."""
        scores = self.probabilities(image[None])[0]
        order = scores.argsort(descending=True).tolist()
        return [(self.facts.class_names[index], float(scores[index])) for index in order]
