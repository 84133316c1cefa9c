from __future__ import annotations

from collections.abc import Callable

import pytest

from sembase.errors import ConfigurationError
from sembase.registry import Registry, load_target


def test_targets_are_loaded_only_when_asked_for() -> None:
    registry: Registry[Callable[..., object]] = Registry("thing")
    registry.register("broken", "no.such.module:nothing")
    registry.register("dumps", "json:dumps")
    assert registry.names() == ("broken", "dumps")
    assert registry.get("dumps")([1]) == "[1]"
    with pytest.raises(ModuleNotFoundError):
        registry.get("broken")


def test_a_single_target_is_imported_on_use() -> None:
    assert load_target("json:dumps")([1]) == "[1]"
    with pytest.raises(ModuleNotFoundError):
        load_target("no.such.module:nothing")


def test_a_name_is_taken_once_and_a_wrong_one_is_explained() -> None:
    registry: Registry[int] = Registry("number", "semblend.no_such_group")
    registry.register("three", 3)
    assert list(registry) == ["three"]
    with pytest.raises(ConfigurationError, match="twice"):
        registry.register("three", 4)
    with pytest.raises(ConfigurationError, match="Did you mean 'three'"):
        registry.get("thre")
