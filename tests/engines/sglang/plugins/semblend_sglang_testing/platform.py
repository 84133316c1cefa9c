"""A platform of plain torch operators: SGLang's own CPU platform needs kernels that no registry has."""

from __future__ import annotations

from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform


class CpuNativePlatform(CpuDeviceMixin, SRTPlatform):
    """No triton, no graphs: the core takes its torch allocators, writers and ``forward_native`` everywhere."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    capabilities = PlatformCapabilities()

    def get_default_attention_backend(self) -> str:
        return "torch_native"

    def get_dispatch_key_name(self) -> str:
        return "native"

    def is_pin_memory_available(self, device: object = None) -> bool:
        return False
