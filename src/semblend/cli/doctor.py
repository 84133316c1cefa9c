"""``kvmend doctor``: what SemBlend will do in this installation, before a server is started."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode, existing_file
from sembase.errors import ConfigurationError
from sembase.registry import load_target
from sembase.streams import write_err, write_out
from semblend.contract.gpu_evidence import GpuEvidence, decode_evidence, encode_evidence
from semblend.doctor.examination import examine_installation
from semblend.doctor.gpu.proof import REPEATS, SIZES, ProofRequest, prove
from semblend.doctor.installation import read_installation
from semblend.doctor.report import Report, as_json, as_table
from semblend.doctor.serve_command import SGLANG, VLLM, ServeCommand, read_command, transfer_of
from semblend.doctor.verdict import Checked, State

NAME: Final = "doctor"
SUMMARY: Final = "Check an installation: versions, platform, model, flags, what is refused and why, the flags to use."
EXAMPLES: Final = """\
  kvmend doctor                                        (which engines are installed, and are they verified)
  kvmend doctor --engine vllm --model DIR -- --enforce-eager --block-size 32
  kvmend doctor --start --json -- vllm serve DIR --tensor-parallel-size 2
  kvmend doctor --gpu --model DIR --out evidence.json  (an hour on one GPU; see docs/guides/gpu.md)
  kvmend doctor --read-evidence evidence.json

exit codes of doctor: 0 SemBlend will be enabled if its self-test passes (--gpu: every step passed), 1 it will be
disabled or restricted (--gpu: a step failed), 2 wrong usage or flags that the engine rejects, 3 the engine is not
installed in this environment"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--engine", choices=(VLLM, SGLANG), help="engine to check (default: the one that is installed)"
    )
    command.add_argument("--model", metavar="DIR", help="folder of the model, or its name on a hub")
    command.add_argument(
        "--start",
        action="store_true",
        help="also build the model's layers, without weights and without memory: the KV cache groups are then the "
        "engine's own, not assumed",
    )
    command.add_argument("--json", action="store_true", help="print the report as JSON (semblend.doctor.v1)")
    proof = command.add_argument_group("proof on a GPU")
    proof.add_argument("--gpu", action="store_true", help="run the proof on this machine's GPU and write evidence")
    proof.add_argument("--out", type=Path, metavar="FILE", help="the evidence to write (semblend.gpu-evidence.v1)")
    proof.add_argument(
        "--sizes", type=_sizes, default=SIZES, metavar="N,N", help="prompt sizes in tokens (default: 1024 to 8192)"
    )
    proof.add_argument("--repeats", type=int, default=REPEATS, metavar="N", help=f"times per size (default: {REPEATS})")
    proof.add_argument("--dtype", help="dtype of the tiny test model (default: bfloat16 on a GPU)")
    proof.add_argument("--read-evidence", type=existing_file, metavar="FILE", help="validate evidence and summarise it")
    command.add_argument(
        "words", nargs="*", metavar="-- COMMAND", help="the engine's flags, or the whole command line of the server"
    )


def execute(options: argparse.Namespace) -> ExitCode:
    if options.read_evidence is not None:
        return _read_evidence(options)
    if options.gpu:
        return _prove(options)
    with contextlib.redirect_stdout(sys.stderr):  # engines log to stdout
        report = make_report(options)
    write_out(as_json(report) if options.json else as_table(report))
    return exit_code(report)


def _prove(options: argparse.Namespace) -> ExitCode:
    if options.out is None:
        raise ConfigurationError("--gpu needs --out FILE for the evidence")
    with contextlib.redirect_stdout(sys.stderr):
        report = make_report(options)
    command = report.proposed_command or report.command
    if report.missing or command is None or report.verdict.state is not State.READY:
        write_out(as_table(report))
        return exit_code(report) if report.command is not None else ExitCode.USAGE
    engine = report.installation.engine(command.engine)
    if command.engine != VLLM or engine is None or report.model is None:
        raise ConfigurationError("the proof runs with vLLM; name it with --engine vllm --model DIR")
    request = ProofRequest(
        command=command,
        engine_version=engine.version,
        architecture=report.model.architecture,
        sizes=options.sizes,
        repeats=options.repeats,
        dtype=options.dtype,
        options={
            name: value
            for name, value in transfer_of(command)["kv_connector_extra_config"].items()
            if name == "experimental_gpu"
        },
    )
    evidence = prove(request, lambda line: write_err(f"kvmend doctor: {line}\n"))
    options.out.write_text(encode_evidence(evidence), encoding="utf-8")
    write_out(_summary(evidence) + f"written: {options.out}\n")
    return _proof_code(evidence)


def _read_evidence(options: argparse.Namespace) -> ExitCode:
    evidence = decode_evidence(options.read_evidence.read_text(encoding="utf-8"))
    write_out(_summary(evidence))
    return _proof_code(evidence)


def _proof_code(evidence: GpuEvidence) -> ExitCode:
    return ExitCode.GATE_FAILED if any(each.status == "failed" for each in evidence.steps) else ExitCode.OK


def _summary(evidence: GpuEvidence) -> str:
    lines = [
        f"{evidence.device} ({evidence.device_type}), {evidence.backend}, {evidence.model} ({evidence.architecture}), "
        f"{evidence.engine} {evidence.engine_version}, kvmend {evidence.semblend_version}, {evidence.created}",
        *(f"  {each.name:<12}{each.status:<9}{each.seconds:7.1f} s  {each.detail}".rstrip() for each in evidence.steps),
    ]
    obstacles = evidence.obstacles
    lines.append(
        "not evidence for a GPU: " + "; ".join(obstacles) if obstacles else "evidence for this GPU, backend and model"
    )
    return "\n".join(lines) + "\n"


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(part) for part in text.split(","))
    if not sizes or min(sizes) < 64:
        raise argparse.ArgumentTypeError("sizes are whole numbers of at least 64, separated by commas")
    return sizes


def make_report(options: argparse.Namespace) -> Report:
    installation = read_installation()
    engine = options.engine or (installation.engines[0].name if len(installation.engines) == 1 else None)
    command = read_command(engine, options.model, options.words)
    if command is None and options.words and options.model is None:
        raise ConfigurationError("the command line after -- names no model; add --model DIR before the --")
    return examine_installation(
        installation,
        command,
        check_command,
        start=options.start,
        device_type=_device_type,
        fill_in=fill_in,
    )


def exit_code(report: Report) -> ExitCode:
    if report.missing:
        return ExitCode.ENVIRONMENT
    if report.command is None:
        return ExitCode.OK if all(each.verified for each in report.installation.engines) else ExitCode.GATE_FAILED
    return ExitCode.OK if report.verdict.state is State.READY else ExitCode.GATE_FAILED


def check_command(command: ServeCommand, is_connected: bool, start: bool) -> Checked:
    """The engine's own check of a command line; imports the engine."""
    name = "vllm_check:check_vllm" if command.engine == VLLM else "sglang_check:check_sglang"
    logging.getLogger(command.engine).setLevel(logging.ERROR)
    checked: Checked = load_target(f"semblend.doctor.{name}")(command, is_connected=is_connected, start=start)
    return checked


def fill_in(command: ServeCommand) -> ServeCommand:
    """A command of vLLM with what ``kvmend serve`` adds; imports the engine."""
    filled: ServeCommand = load_target("semblend.doctor.fill_in:fill_in")(command)
    return filled


def _device_type() -> str:
    return str(load_target("semblend.doctor.vllm_check:device_type")())
