"""qwen3_next against transformers' own model (goldens/families)."""
import pytest

from families import check


@pytest.mark.parametrize("name", ["qwen3_next"])
def test_prompt_and_cached_steps_equal_the_golden(name):
    check(name)
