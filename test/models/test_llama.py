"""llama with every rotary scaling against transformers' own model (goldens/families)."""
import pytest

from families import check


@pytest.mark.parametrize("name", ["llama", "llama_linear", "llama_dynamic", "llama_llama3", "llama_yarn"])
def test_prompt_and_cached_steps_equal_the_golden(name):
    check(name)
