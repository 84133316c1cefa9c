from enum import Enum

class CacheHitSource(str, Enum):  # noqa: UP042 - as the engine has it
    DEVICE = "device"
    HOST = "host"
    P2P = "p2p"
    DISK = "disk"
    EXTERNAL_UNSPECIFIED = "external_unspecified"
