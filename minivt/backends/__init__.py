"""Implementations of runtime's seam, one module or folder each; nothing here is imported until it is asked for."""
