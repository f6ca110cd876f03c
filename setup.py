"""Packaging. `models/` at the top of the repository is installed as the package minivt.models."""
from setuptools import find_packages, setup

packages = find_packages(include=["minivt", "minivt.*"])
setup(
    name="minivt",
    version="0.1.0",
    description="A minimal tensor framework: about forty primitives, one scheduler, one code generator",
    license="MIT",
    python_requires=">=3.10",
    packages=[*packages, "minivt.models"],
    package_dir={"minivt.models": "models"},
    install_requires=["numpy>=1.26", "llvmlite>=0.50", "safetensors>=0.4", "tqdm>=4.60"],
    extras_require={
        "models": ["tokenizers>=0.20", "jinja2>=3.1", "gguf>=0.19"],
        "cuda": ["pycuda>=2026.1", "cuda-bindings>=13,<14", "nvidia-cuda-nvrtc==13.0.*"],
        "test": ["pytest>=8", "hypothesis>=6", "pytest-timeout>=2.3", "ml_dtypes>=0.5", "tokenizers>=0.20",
                 "jinja2>=3.1", "gguf>=0.19",
                 # the compiler of generated GPU code, which needs no GPU
                 "cuda-bindings>=13,<14; sys_platform == 'linux' and platform_machine == 'x86_64'",
                 "nvidia-cuda-nvrtc==13.0.*; sys_platform == 'linux' and platform_machine == 'x86_64'"],
    },
)
