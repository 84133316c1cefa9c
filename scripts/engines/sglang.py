"""Build ``.engines/sglang``: SGLang on CPU from the registry, with this package and a test-only platform beside it.

Run ``python -m scripts.engines.sglang``. Safe to repeat: a stamped environment is only verified, and our package and
the plug-ins of ``tests/engines/sglang/plugins`` go in again when their metadata changed. No GPU package is needed.
"""

from __future__ import annotations

import os

from scripts.engines.engine_venv import EngineVenv
from scripts.private_venv import ROOT, VenvRecipe, folder_of

# What SGLang imports on CPU; its own metadata asks for CUDA kernels that neither load nor are needed here.
_NEEDED = """
numpy pillow orjson psutil pybase64 requests triton starlette msgspec pydantic pyzmq tqdm ipython
aiohttp transformers==5.19.0 dill apache-tvm-ffi==0.1.11 sentencepiece==0.2.1
compressed-tensors==0.18.0 gguf anthropic blobfile==3.0.0 build datasets distro easydict einops
fastapi interegular llguidance<2,>=1.7.6 mistral_common>=1.11.5 modelscope ninja numba==0.65.1
nvidia-ml-py openai==2.8.0 openai-harmony==0.0.4 outlines==0.1.11 packaging partial_json_parser
prometheus-client py-spy python-dateutil python-multipart regex scipy setproctitle
soundfile==0.13.1 tiktoken uvicorn>=0.51 uvloop watchfiles xxhash zstandard accelerate msgpack
setuptools
"""
_BARE = """
sglang==0.5.23 torchvision==0.28.0
xgrammar==0.2.7 timm==1.0.25 tokenizers==0.23.2 torch_memory_saver smg-grpc-servicer
"""
PLUGINS = ROOT / "tests" / "engines" / "sglang" / "plugins"
# This checkout's code, whichever checkout the environment's editable installs point at.
CODE_PATH = os.pathsep.join((str(ROOT / "src"), str(PLUGINS)))
RECIPE = VenvRecipe("sglang", packages=("torch==2.13.0", *_NEEDED.split()), bare=tuple(_BARE.split()))


def _silence_torchvision(recipe: VenvRecipe) -> None:
    """The registry's torchvision is a CUDA build: beside CPU torch its import dies on the operators it registers."""
    for place in folder_of(recipe).glob("lib/python*/site-packages/torchvision/_meta_registrations.py"):
        if place.stat().st_size:
            place.unlink()  # the file is shared with other environments: a new one, not a shorter one
            place.write_text("")


VERIFY = """
import numba, numpy, torch, semblend, semblend_sglang_testing
from sglang.srt.platforms import current_platform
assert current_platform.device_type == "cpu", current_platform
"""
VENV = EngineVenv(
    RECIPE,
    held=("numpy", "numba", "llvmlite", "torch", "sglang", "transformers", "tokenizers"),
    verify=VERIFY,
    shown=("sglang", "torch", "transformers", "numpy", "numba", "kvmend"),
    test_tools=("pytest>=8.2", "hypothesis>=6.100", "usearch>=2.15"),  # the last for the semantic path
    extras=("sglang", "fleet", "mooncake"),
    beside=(PLUGINS,),
    fix=_silence_torchvision,
)

if __name__ == "__main__":
    raise SystemExit(VENV.main(__doc__))
