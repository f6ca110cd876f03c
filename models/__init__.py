"""Model families in plain Python over Tensor and nn, and what loads them: GGUF files, tokenizers, chat templates.

For: running and reading a model.  Not for: kernels, schedules or devices; nothing here knows about them.
"""
