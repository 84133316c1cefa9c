from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.semblend.integration.vllm_fakes import config

from semblend.contract.namespace import UNKNOWN, Namespace
from semblend.integration.vllm.namespace import deployment_namespace, request_namespace


def base(**changes: Any) -> Namespace:
    return deployment_namespace(config(**changes), "layout-digest")


def of_request(salt: str | None = None, lora: object | None = None, *, require_salt: bool = False) -> Namespace:
    return request_namespace(base(), salt, lora, require_salt=require_salt)


def adapter(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**({"lora_name": "law", "lora_int_id": 1, "lora_path": "adapters/law"} | changes))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def test_a_deployment_knows_everything_but_the_tenant() -> None:
    namespace = base()
    assert namespace.unknown_components() == ("tenant",)
    assert namespace.kv_layout == "layout-digest"
    assert namespace.block_size == 128
    assert namespace.rope == '{"rope_theta":100000.0,"rope_type":"default"}'
    assert namespace.dtype == "model=bfloat16,kv=auto"
    assert namespace.lora is None


def test_a_layout_that_was_not_probed_is_unknown() -> None:
    assert deployment_namespace(config(), None).kv_layout is UNKNOWN


@pytest.mark.parametrize(
    ("changes", "component"),
    [
        ({"model__model": "other/model"}, "model"),
        ({"model__quantization": "awq"}, "model"),
        ({"model__hf_overrides": {"rope_theta": 1.0}}, "model"),
        ({"model__revision": "v2"}, "revision"),
        ({"hf___commit_hash": "abc"}, "revision"),
        ({"model__tokenizer": "other/tokenizer"}, "tokenizer"),
        ({"model__tokenizer_revision": "v2"}, "tokenizer"),
        ({"model__dtype": "torch.float16"}, "dtype"),
        ({"cache__cache_dtype": "fp8"}, "dtype"),
        ({"cache__block_size": 64}, "block_size"),
        ({"hf__rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, "rope"),
        ({"parallel__tensor_parallel_size": 2}, "tp_layout"),
    ],
)
def test_what_differs_shows_in_its_component_and_only_there(changes: dict[str, Any], component: str) -> None:
    other, plain = base(**changes), base()
    differing = [name for name in Namespace.__slots__ if getattr(other, name) != getattr(plain, name)]
    assert differing == [component]


@pytest.mark.parametrize(
    ("changes", "component"),
    [
        ({"model__model": None}, "model"),
        ({"model__model": ""}, "model"),
        ({"model__revision": 7}, "revision"),
        ({"model__tokenizer": None}, "tokenizer"),
        ({"model__dtype": None}, "dtype"),
        ({"cache__cache_dtype": None}, "dtype"),
        ({"cache__block_size": None}, "block_size"),
        ({"cache__block_size": True}, "block_size"),
        ({"model__hf_config": None, "model__hf_text_config": None}, "rope"),
        ({"hf__rope_parameters": {"rope_theta": object()}}, "rope"),
        ({"parallel__tensor_parallel_size": None}, "tp_layout"),
    ],
)
def test_what_cannot_be_read_is_unknown_and_never_none(changes: dict[str, Any], component: str) -> None:
    assert base(**changes).unknown_components() == tuple(
        name for name in Namespace.__slots__ if name in {"tenant", component}
    )


def test_parameters_in_another_order_are_the_same() -> None:
    turned = {"rope_type": "default", "rope_theta": 100000.0}
    assert base(hf__rope_parameters=turned) == base()


def test_weights_changed_in_place_are_another_model(checkpoint: Path) -> None:
    before = base(model__model=str(checkpoint))
    assert base(model__model=str(checkpoint)) == before
    stamp = (checkpoint / "model.safetensors").stat().st_mtime_ns + 10**9
    os.utime(checkpoint / "model.safetensors", ns=(stamp, stamp))
    assert base(model__model=str(checkpoint)).model != before.model


def test_a_changed_configuration_is_another_model_and_other_files_are_not(checkpoint: Path) -> None:
    before = base(model__model=str(checkpoint))
    (checkpoint / "README.md").write_text("hello")
    assert base(model__model=str(checkpoint)) == before
    (checkpoint / "config.json").write_text('{"model_type": "llama" }')
    assert base(model__model=str(checkpoint)).model != before.model


def test_a_link_to_a_directory_is_known_by_its_target(checkpoint: Path, tmp_path_factory: Any) -> None:
    link = tmp_path_factory.mktemp("link") / "model"
    link.symlink_to(checkpoint)
    assert str(checkpoint.resolve()) in str(base(model__model=str(link)).model)


@pytest.mark.parametrize("require_salt", [False, True])
def test_a_salt_is_a_tenant_by_its_digest_only(require_salt: bool) -> None:
    namespace = of_request("top-secret", require_salt=require_salt)
    assert namespace.is_known
    assert str(namespace.tenant).startswith("salt:")
    assert "top-secret" not in repr(namespace)
    assert namespace == of_request("top-secret")
    assert namespace != of_request("top-secret ")
    assert of_request("").tenant not in (None, UNKNOWN)


def test_no_salt_is_a_tenant_of_its_own_unless_one_is_required() -> None:
    assert of_request().tenant is None
    assert of_request().is_known
    assert of_request(require_salt=True).unknown_components() == ("tenant",)


@pytest.mark.parametrize(
    "other", [None, adapter(lora_name="tax"), adapter(lora_int_id=2), adapter(lora_path="adapters/law2")]
)
def test_an_adapter_is_its_name_id_and_path(other: object | None) -> None:
    assert of_request(lora=adapter()).is_known
    assert of_request(lora=adapter()) == of_request(lora=adapter())
    assert of_request(lora=adapter()) != of_request(lora=other)


@pytest.mark.parametrize(
    "lora",
    [
        object(),
        adapter(lora_name=None),
        adapter(lora_int_id="1"),
        adapter(lora_path=""),
        adapter(load_inplace=True),
    ],
)
def test_an_adapter_that_cannot_be_identified_is_unknown(lora: object) -> None:
    assert of_request(lora=lora).unknown_components() == ("lora",)
