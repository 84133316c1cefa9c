"""Test only: a CPU platform without compiled kernels for stock SGLang, and one attention routine made rectangular."""


def activate() -> str:
    """Asked by SGLang's platform discovery."""
    return "semblend_sglang_testing.platform.CpuNativePlatform"
