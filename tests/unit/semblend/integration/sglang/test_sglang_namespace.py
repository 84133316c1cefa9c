from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from semblend.contract import UNKNOWN, Namespace
from semblend.integration.sglang.namespace import deployment_namespace, request_namespace


def described(model_path: str, **changed: object) -> Namespace:
    args = {"model_path": model_path, "tp_size": 1, "pp_size": 1, "dp_size": 1} | changed
    hf = SimpleNamespace(rope_parameters={"rope_theta": 1e4})
    model = SimpleNamespace(dtype="torch.float32", hf_config=hf, quantization=None)
    return deployment_namespace(SimpleNamespace(**args), model, kv_layout="nhd", kv_dtype="float32", page=16)


def test_everything_but_the_tenant_is_known() -> None:
    assert described("some/model").unknown_components() == ("tenant",)
    assert described("").unknown_components() == ("tenant", "model", "tokenizer")
    assert described("m", tp_size=None).unknown_components() == ("tenant", "tp_layout")


def test_weights_changed_in_place_are_another_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1")
    before = described(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"22")
    assert before.model != described(str(tmp_path)).model


@pytest.mark.parametrize("require", [False, True])
def test_salt_and_extra_key_part_tenants_as_they_part_the_tree(require: bool) -> None:
    base = described("m")
    keys = [(salt, extra) for salt in (None, "", "a", "b") for extra in (None, "", "a", "b")]
    tenants = [request_namespace(base, salt, extra, require_salt=require).tenant for salt, extra in keys]
    known = [tenant for tenant in tenants if tenant is not UNKNOWN]
    assert len(set(known)) == len(known)
    assert (UNKNOWN in tenants) is require
    assert replace(request_namespace(base, "a", None, require_salt=require), tenant=UNKNOWN) == base
    assert not any(tenant == "b" for tenant in known), "a salt never leaves as plain text"
