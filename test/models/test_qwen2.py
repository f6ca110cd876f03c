"""qwen2 against transformers' own model (goldens/families)."""
import pytest

from families import check


@pytest.mark.parametrize("name", ["qwen2"])
def test_prompt_and_cached_steps_equal_the_golden(name):
    check(name)
