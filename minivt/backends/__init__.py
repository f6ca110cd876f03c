"""Implementations of runtime's seam, one module or folder each; nothing here is imported until it is asked for."""

# The first part of a device name -> the module whose open_backend(device) gives its Backend.
MODULES = {
    "cpu": "minivt.backends.cpu.backend",
    "cuda": "minivt.backends.cuda",
    "reference": "minivt.backends.reference_backend",
    "interpret": "minivt.backends.reference_backend",
}
