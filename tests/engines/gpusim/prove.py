"""``semblend doctor --gpu`` end to end on the simulated GPU: ``python -m tests.engines.gpusim.prove [FOLDER]``.

Every step must pass; the evidence must say that it was made on a CPU. About four minutes of processor time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.engines import vllm
from scripts.private_venv import python_of
from tests.engines.gpusim.configuration import Backend, Simulation
from tests.engines.gpusim.running import missing

from semblend.contract.gpu_evidence import decode_evidence

FLAGS = "--dtype=float32 --skip-tokenizer-init --enforce-eager --max-model-len=1024 --max-num-batched-tokens=1024"
SAVE = "import sys; from pathlib import Path; from semblend.doctor.gpu.tiny_model import TinyModel; "


def prove(folder: Path) -> str:
    """What is wrong with the evidence; empty if nothing is."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "PYTHON"))},
        **Simulation(backend=Backend.FLASH_ATTENTION_3).environment(folder / "site"),
        "VLLM_CACHE_ROOT": str(folder / "cache"),
    }
    python, model, evidence = str(python_of(vllm.RECIPE)), folder / "model", folder / "evidence.json"
    save = f"{SAVE}TinyModel().save(Path(sys.argv[1]))"
    subprocess.run([python, "-P", "-c", save, str(model)], env=environment, check=True)
    command = [python, "-P", "-m", "semblend.cli", "doctor", "--gpu", "--out", str(evidence)]
    command += ["--sizes", "256,512", "--repeats", "2", "--", "vllm", "serve", str(model), *FLAGS.split()]
    code = subprocess.run(command, env=environment, check=False).returncode
    if not evidence.is_file():
        return f"no evidence was written (exit code {code})"
    found = decode_evidence(evidence.read_text(encoding="utf-8"))
    if code or found.obstacles != ("it was made on a CPU",):
        return "; ".join(found.obstacles) or f"exit code {code}"
    return ""


def main() -> int:
    if why := missing():
        print(why)
        return 3
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]) if sys.argv[1:] else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        wrong = prove(folder)
    print(wrong or "every step passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
