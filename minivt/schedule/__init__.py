"""Graph to kernels: cuts (partition), index expressions (indexing), one-pass reductions (online), tiles (tiling).

Not for code of any target (codegen) nor for running (runtime).
"""
