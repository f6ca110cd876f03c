"""The goldens of goldens/families as models to run, and how far a result is from them.  Not for tests themselves."""
import json
from pathlib import Path

import numpy as np
from safetensors import safe_open

from minivt.models.config import Config
from minivt.models.decoder import Decoder

FOLDER = Path(__file__).parents[2] / "goldens/families"
TOLERANCE = 1e-5   # float32 strays 6e-6 at most; the mildest defect of test_families.py costs 2e-2


class Golden:
    """weights, ids (tokens,), logits (steps + 1, vocabulary) from the prompt's end on, hidden (layers + 1, width)."""

    def __init__(self, name):
        with safe_open(FOLDER / f"{name}.safetensors", "numpy") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}
            self.config = Config.from_hf(json.loads(file.metadata()["config"]))
        self.weights = {key.removeprefix("weight."): value for key, value in tensors.items() if "weight." in key[:7]}
        self.ids, self.logits, self.hidden = tensors["ids"].tolist(), tensors["logits"], tensors["hidden"]
        self.prompt = len(self.ids) - len(self.logits) + 1
        self.context = len(self.ids)

    def decoder(self, **options):
        return Decoder(self.weights, self.context, **{"config": self.config, "cache": "float32", **options})


def error(got, expected):
    return np.abs(got - expected).max() / np.abs(expected).max()


def steps(golden, decoder):
    """Logits after the prompt and after each token that follows."""
    return np.stack([decoder.logits(golden.ids[:count]) for count in range(golden.prompt, len(golden.ids) + 1)])


def check(name):
    """The logits after the prompt and after each cached step are those of the golden, and zeros are not."""
    golden = Golden(name)
    got = steps(golden, golden.decoder())
    assert got.shape == golden.logits.shape
    assert error(got, golden.logits) <= TOLERANCE < error(0 * got, golden.logits)
