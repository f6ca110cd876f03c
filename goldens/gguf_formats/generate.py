"""Writes formats.safetensors: random blocks of every packed GGUF format, and the values that they mean.

Ran with gguf 0.19.0 (its quants.dequantize) and NumPy.  For: test/models/test_quantization.py.
Run: python goldens/gguf_formats/generate.py
"""
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from safetensors.numpy import save_file

BLOCKS = 6          # of each format: four of any bytes whose values are finite, two of any bytes at all
FORMATS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0", "MXFP4",
           "NVFP4", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS")


def draw(rng: np.random.Generator, kind: GGMLQuantizationType) -> tuple[np.ndarray, np.ndarray]:
    """(blocks, bytes) uint8 and (blocks, elements) float32."""
    block, size = GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (200, size), np.uint8)
    with np.errstate(all="ignore"):
        values = quants.dequantize(raw, kind).reshape(200, block)
    usual = np.isfinite(values).all(1) & (np.abs(values).max(1) < 1e4)
    chosen = np.concatenate([np.flatnonzero(usual)[:BLOCKS - 2], np.flatnonzero(~usual)[:2]])
    return raw[chosen], values[chosen]


def main():
    rng, tensors = np.random.default_rng(20), {}
    for name in FORMATS:
        tensors[f"{name}.blocks"], tensors[f"{name}.values"] = draw(rng, GGMLQuantizationType[name])
    save_file(tensors, Path(__file__).parent / "formats.safetensors")


if __name__ == "__main__":
    main()
