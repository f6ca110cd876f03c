"""Writes windows.safetensors: what torch gives for the calls of cases.py on seeded normal numbers.

Run from anywhere with the reference environment of goldens/README.md: python generate.py (a second). Results are
computed in float64 and rounded once, so that nobody's order of summation is in them; float32 must agree within 1e-5.
"""
from pathlib import Path

import numpy as np
import torch
from cases import CASES, label
from safetensors.torch import save_file

HERE = Path(__file__).parent


def call(name: str, tensors: list, arguments: dict):
    """torch's result for one case; complex numbers are a last axis of 2, padding is torch's from the last axis."""
    if name == "pad":
        widths = [w for pair in reversed(arguments["widths"]) for w in pair]
        if arguments["mode"] != "constant":
            widths = widths[:2 * (tensors[0].ndim - 2)]
        rest = {k: v for k, v in arguments.items() if k != "widths"}
        return torch.nn.functional.pad(tensors[0], widths, **rest)
    if name == "stft":
        return torch.view_as_real(torch.stft(tensors[0], window=tensors[1], return_complex=True, **arguments))
    if name == "istft":
        return torch.istft(torch.view_as_complex(tensors[0]), window=tensors[1], **arguments)
    return getattr(torch.nn.functional, name)(*tensors, **arguments)


def case_tensors(number: int) -> list:
    """Seeded normal numbers; windows of a transform are positive, spectra have real ends."""
    name, shapes, _ = CASES[number]
    rng = np.random.default_rng(number)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    if name in ("stft", "istft"):
        arrays[1] = np.abs(arrays[1]) + np.float32(0.5)
    return [torch.tensor(array) for array in arrays]


def main():
    held = {}
    for number, (name, shapes, arguments) in enumerate(CASES):
        tensors = case_tensors(number)
        exact = call(name, [t.double() for t in tensors], arguments).float()
        assert torch.allclose(call(name, tensors, arguments), exact, rtol=1e-5, atol=1e-5), name
        held |= {f"{label(number)}.{i}": t for i, t in enumerate(tensors)}
        held[f"{label(number)}.out"] = exact.contiguous()
    save_file(held, HERE / "windows.safetensors", {"torch": torch.__version__})


if __name__ == "__main__":
    main()
