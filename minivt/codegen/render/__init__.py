"""Text of each language, and the only place of instruction names in code. Not for choices of any kind."""
