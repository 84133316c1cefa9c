from sglang.srt.mem_cache.pool_host import base as base
from sglang.srt.mem_cache.pool_host import common as common
