"""Our GPU kernels on machines without a GPU: what their compilers say."""
