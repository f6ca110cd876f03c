"""Kernel to code: tiles and layouts, threads or vector lanes, text. Not for what is in one kernel (schedule)."""
