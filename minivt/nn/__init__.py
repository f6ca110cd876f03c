"""Layers and the walk over their parameters: Linear, Embedding, norms, rotary positions, state dicts, safetensors.

A layer is any object; its parameters are the Tensors among its attributes. Not for models (minivt.models).
"""
from minivt.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d
from minivt.nn.layers import Embedding, LayerNorm, Linear, RMSNorm
from minivt.nn.rotary import rotary_frequencies, rotate_adjacent, rotate_halves
from minivt.nn.state import load_safetensors, load_state_dict, save_safetensors, state_dict

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "Embedding", "LayerNorm", "Linear",
           "RMSNorm", "load_safetensors", "load_state_dict", "rotary_frequencies", "rotate_adjacent", "rotate_halves",
           "save_safetensors", "state_dict"]
