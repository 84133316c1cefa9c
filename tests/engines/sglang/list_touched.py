"""Run by the engine's interpreter: loads the named plug-ins as the engine does, prints what they changed."""

from __future__ import annotations

import json
import os
import sys

from sglang.srt.mem_cache.registry import registered_radix_cache_backends
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.plugins import load_plugins
from sglang.srt.plugins.hook_registry import HookRegistry

before = {name: id(value) for name, value in vars(UnifiedRadixCache).items()}
forward = ModelRunner.forward
os.environ["SGLANG_PLUGINS"] = ",".join(sys.argv[1:])
load_plugins()
result = {
    "backends": registered_radix_cache_backends(),
    "patched": sorted(HookRegistry._patched),
    "forward_is_stock": ModelRunner.forward is forward,
    "cache_is_stock": before == {name: id(value) for name, value in vars(UnifiedRadixCache).items()},
}
print("RESULT " + json.dumps(result))
