"""The move kernel compiled for devices that are not here: a target and a form of keys in, a compiler's figures out.

Triton's wheel has its own assemblers, so machine code for NVIDIA and AMD comes out of any Linux machine.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from semblend.kv import move_kernel
from semblend.kv.move import Pages, rotation_forms
from semblend.kv.rope import LayerRotations, Rotation

TARGETS: Final = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_89": GPUTarget("cuda", 89, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
_NEWER: Final = 90  # from this generation on Triton takes the newer assembler


@dataclass(frozen=True, slots=True)
class Form:
    """Keys as a family of models has them."""

    name: str
    dtype: torch.dtype
    heads: int
    key_dim: int
    value_dim: int
    rotary_dim: int
    interleaved: bool = False
    first_dim: int = 0


FORMS: Final = (
    Form("Llama 3, Qwen: 8 x 128", torch.bfloat16, 8, 128, 128, 128),
    Form("the same in fp16", torch.float16, 8, 128, 128, 128),
    Form("GLM-4: half of 128, interleaved", torch.bfloat16, 2, 128, 128, 64, True),
    Form("Gemma 3: 1 x 256", torch.bfloat16, 1, 256, 256, 256),
    Form("DeepSeek V3: 64 of 576, one vector", torch.bfloat16, 1, 576, 0, 64, True, 512),
    Form("fp8 (e4m3): 8 x 128", torch.float8_e4m3fn, 8, 128, 128, 128),
)


@dataclass(frozen=True, slots=True)
class Compiled:
    """``wide`` counts accesses of 128 bits, ``narrow`` those of less than 64 but not 32, which only rows can cause."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    wide: int
    narrow: int
    code_bytes: int


def compile_move(form: Form, target: GPUTarget) -> Compiled:
    source = _source(form)
    # Triton warns while its default changes; our kernel is right within one unit in the last place either way.
    options = {"enable_fp_fusion": True, "num_warps": move_kernel.THREADS // target.warp_size}
    built = triton.compile(source, target=target, options=options)
    if target.backend == "cuda":
        return _nvidia(built, int(target.arch))
    return _amd(built)


def _source(form: Form) -> Any:
    pairs = torch.ones(form.rotary_dim // 2)
    [forms] = rotation_forms(LayerRotations([Rotation(pairs, form.interleaved, form.first_dim)]))
    memory = torch.empty((1, 16, form.heads, form.key_dim + form.value_dim)).to(form.dtype)
    values = (memory[..., form.key_dim :],) if form.value_dim else ()
    pages = Pages((memory[..., : form.key_dim],), values)
    constants = move_kernel.constants(forms, pages, pages, aligned=True)
    names = move_kernel.move_rows.arg_names
    types = {"layer_table": "*i32", "run_of": "*i32", "cosine": "*fp32", "sine": "*fp32"}
    types |= dict.fromkeys(("source_addresses", "target_addresses", "sources", "targets"), "*i64")
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
    aligned = {
        (number,): [["tt.divisibility", 16]]  # as the launcher finds them
        for number, name in enumerate(names)
        if name not in {*constants, "layer_table", "rows", "runs", "value_at"}
    }
    by_number = {(names.index(name),): value for name, value in constants.items()}
    return ASTSource(move_kernel.move_rows, signature, by_number, aligned)


def assembler(architecture: int) -> Path:
    """The wheel's own assembler for a generation of NVIDIA devices."""
    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    return folder / ("ptxas-blackwell" if architecture >= _NEWER else "ptxas")


def _nvidia(built: Any, architecture: int) -> Compiled:
    text = built.asm["ptx"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "move.ptx"
        path.write_text(text)
        generation = re.search(r"^\.target (\w+)", text, re.MULTILINE)
        assert generation is not None, "every program names its target"
        command = [str(assembler(architecture)), "-v", f"--gpu-name={generation[1]}", str(path), "-o", f"{path}.out"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    report = done.stderr + done.stdout
    wide = len(re.findall(r"(?:ld|st)\.global\S*\.v4\.b32", text))
    narrow = len(re.findall(r"(?:ld|st)\.global\S*\.(?:v2\.b16|b16|v[24]\.b8|b8)\b", text))
    return Compiled(
        registers=_number(r"Used (\d+) registers", report),
        spilled_bytes=_number(r"(\d+) bytes spill stores", report) + _number(r"(\d+) bytes spill loads", report),
        shared_bytes=int(built.metadata.shared),
        wide=wide,
        narrow=narrow,
        code_bytes=len(built.asm["cubin"]),
    )


def _amd(built: Any) -> Compiled:
    text = built.asm["amdgcn"]
    spilled = _number(r"\.vgpr_spill_count:\s+(\d+)", text) + _number(r"\.sgpr_spill_count:\s+(\d+)", text)
    return Compiled(
        registers=_number(r"\.vgpr_count:\s+(\d+)", text),
        spilled_bytes=4 * spilled,
        shared_bytes=int(built.metadata.shared),
        wide=len(re.findall(r"global_(?:load|store)_dwordx4", text)),
        narrow=len(re.findall(r"global_(?:load|store)_(?:short|byte|ubyte|ushort)", text)),
        code_bytes=len(built.asm["hsaco"]),
    )


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"the compiler does not report {pattern!r}")
    return int(found[1])
