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


def main():
    held = {}
    for number, (name, shapes, arguments) in enumerate(CASES):
        rng = np.random.default_rng(number)
        tensors = [torch.tensor(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]
        function = getattr(torch.nn.functional, name)
        exact = function(*(t.double() for t in tensors), **arguments).float()
        assert torch.allclose(function(*tensors, **arguments), exact, rtol=1e-5, atol=1e-5), name
        held |= {f"{label(number)}.{i}": t for i, t in enumerate(tensors)}
        held[f"{label(number)}.out"] = exact.contiguous()
    save_file(held, HERE / "windows.safetensors", {"torch": torch.__version__})


if __name__ == "__main__":
    main()
