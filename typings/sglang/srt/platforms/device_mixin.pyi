from enum import Enum

class PlatformEnum(Enum):
    OOT = ...
