"""``kvmend calibrate``: pairs from a running server, or observations of an earlier run, to a calibration file."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError, ContractError, MissingDependencyError
from sembase.files import replace_atomically
from sembase.streams import write_err, write_out
from semblend.calibrate.engine import Engine
from semblend.calibrate.fit import fit, min_items
from semblend.calibrate.measure import STATISTIC, measure, tokens_per_word
from semblend.calibrate.observations import Observation, decode_observations, encode_observation
from semblend.calibrate.prompts import LONGEST_TOKENS, CalibrationItem, items_of, passages_of, prompt_words
from semblend.contract import PlanShape
from semblend.guard.pair import ANSWER_TOKENS, AnswerError
from semblend.guard.tracker import GuardLimits
from semblend.plan.deviation_curve import PRESETS, DeviationCurve, decode_calibration, preset_curve
from semblend.plan.prediction import Calibration, encode_prediction

NAME: Final = "calibrate"
SUMMARY: Final = "Fit predicted KL to measured blends and write the calibration file the gates read."
MIN_LONGEST_TOKENS: Final = 512
_CONTEXT_PART: Final = 0.9  # some texts have more tokens per word than the sample
EXAMPLES: Final = """\
  kvmend calibrate --model DIR --server http://127.0.0.1:8000 --texts corpus.txt --out calibration.json
  kvmend calibrate --model DIR --server http://127.0.0.1:8000 --texts corpus.txt --measure-curve 8 --out c.json
  kvmend calibrate --model DIR --observations seen.jsonl --kl-floor 0.002 --out calibration.json"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder with the model's config.json")
    command.add_argument("--out", type=Path, required=True, metavar="FILE", help="the calibration file to write")
    command.add_argument(
        "--server", metavar="URL", help="server with the connector; receives blended and cold requests"
    )
    command.add_argument("--served-name", metavar="NAME", help="model name on the server (default: the first it lists)")
    command.add_argument("--texts", type=Path, metavar="FILE", help="plain text to build prompts from")
    command.add_argument("--items", type=int, default=12, metavar="N", help="items per class (default: %(default)s)")
    command.add_argument(
        "--longest",
        type=int,
        default=LONGEST_TOKENS,
        metavar="N",
        help="tokens of the longest prompts, a quarter of the items; at most what the server's context holds. Longer "
        "prompts reach a higher context risk and take more time (default: %(default)s)",
    )
    command.add_argument("--timeout-s", type=float, default=300.0, metavar="S", help="timeout of one answer")
    command.add_argument("--observations", type=Path, metavar="FILE", help="measured blends to use instead of a server")
    command.add_argument("--keep-observations", type=Path, metavar="FILE", help="write the measured blends here")
    command.add_argument(
        "--kl-floor", type=float, metavar="KL", help="KL between two cold answers; required with --observations"
    )
    command.add_argument("--statistic", default="as observed", metavar="TEXT", help="name of the KL in --observations")
    command.add_argument(
        "--quantile",
        type=float,
        default=0.9,
        metavar="Q",
        help="fraction of items whose measured KL must not exceed the prediction (default: %(default)s)",
    )
    command.add_argument(
        "--curve", type=Path, metavar="FILE", help="file with the measured deviation by layer (calibration.v1)"
    )
    command.add_argument(
        "--measure-curve",
        type=int,
        default=0,
        metavar="N",
        help="measure the deviation by layer on N pairs of contexts from --texts, with transformers "
        "(0: write a preset, marked as such)",
    )


def execute(options: argparse.Namespace) -> ExitCode:
    if (options.server is None) == (options.observations is None):
        raise ConfigurationError("give either --server with --texts, or --observations")
    if not options.out.parent.is_dir():
        raise ConfigurationError(f"--out {options.out}: folder {options.out.parent} does not exist")
    curve = _curve(options)
    if options.server is not None:
        observations, floor, statistic = _measured(options)
    else:
        observations = decode_observations(_lines(options.observations), str(options.observations))
        if options.kl_floor is None:
            raise ConfigurationError("--observations needs --kl-floor: the KL between two cold answers of this model")
        floor, statistic = options.kl_floor, options.statistic
    calibration = fit(observations, curve, floor, options.quantile, statistic)
    with replace_atomically(options.out) as stream:
        stream.write(encode_prediction(calibration).encode())
    write_out(_summary(calibration, observations))
    if calibration.laws:
        chosen = json.dumps({"calibration": str(options.out.resolve()), "max_predicted_kl": GuardLimits().ceiling_kl})
        write_out(f"options of the connector that serve by it: {chosen}\n")
    return ExitCode.OK if calibration.laws else ExitCode.GATE_FAILED


def _curve(options: argparse.Namespace) -> DeviationCurve:
    if options.measure_curve > 0:
        return _measured_curve(options)
    if options.curve is not None:
        return decode_calibration("".join(_lines(options.curve)))
    path = options.model / "config.json"
    try:
        config = json.loads("".join(_lines(path)))
        architecture, layers = str(config["model_type"]), int(config["num_hidden_layers"])
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(f"{path}: not a model configuration: {error}") from None
    return preset_curve(architecture if architecture in PRESETS else "generic", layers)


def _measured_curve(options: argparse.Namespace) -> DeviationCurve:
    if options.curve is not None or options.texts is None:
        raise ConfigurationError("--measure-curve needs --texts and cannot be combined with --curve")
    try:
        from semblend.integration.depth import measured_curve  # noqa: PLC0415  (optional: torch and transformers)
    except ImportError as error:
        purpose = "measuring the deviation by layer"
        raise MissingDependencyError(error.name or "transformers", "embedder", purpose) from None
    return measured_curve(options.model, passages_of("".join(_lines(options.texts))), options.measure_curve)


def _measured(options: argparse.Namespace) -> tuple[list[Observation], float, str]:
    if options.texts is None:
        raise ConfigurationError("--server needs --texts: a file of plain text, preferably from your own traffic")
    if options.items < (minimum := min_items(options.quantile)):
        raise ConfigurationError(f"--items must be at least {minimum} per class for a quantile of {options.quantile:g}")
    if options.longest < MIN_LONGEST_TOKENS:
        raise ConfigurationError(f"--longest must be at least {MIN_LONGEST_TOKENS}")
    engine, text = Engine(options.server, options.timeout_s), "".join(_lines(options.texts))
    listed, context = engine.served_model()
    model = options.served_name or listed
    longest = options.longest if context is None else min(options.longest, int(_CONTEXT_PART * context) - ANSWER_TOKENS)
    items = items_of(text, options.items, prompt_words(longest, tokens_per_word(engine.ask, model, text)))
    try:
        found = measure(engine.ask, model, _announced(items))
    except AnswerError as error:
        raise ContractError(f"{options.server}: the answer has no log-probabilities ({error})") from None
    for name in found.skipped:
        write_out(f"skipped: {name}\n")
    if not found.observations:
        raise ConfigurationError(
            f"{options.server} blended no item: check that the connector is on, with max_context_share 1 and "
            "refresh_on_repeat false"
        )
    if options.keep_observations is not None:
        with replace_atomically(options.keep_observations) as stream:
            stream.writelines(f"{encode_observation(each)}\n".encode() for each in found.observations)
    return found.observations, statistics.fmean(found.floor_kl), STATISTIC


def _announced(items: list[CalibrationItem]) -> Iterator[CalibrationItem]:
    """Print a progress line before each item: measuring takes minutes."""
    for number, item in enumerate(items, 1):
        write_err(f"{number} of {len(items)}: {item.name}\n")
        yield item


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8: {error}") from None


def _summary(calibration: Calibration, observations: list[Observation]) -> str:
    curve = calibration.curve
    lines = [
        f"deviation by layer: {curve.provenance.value} ({curve.model}, {curve.layers} layers)"
        + ("; not measured on this model" if curve.provenance.value == "preset" else ""),
        f"noise floor: KL {calibration.kl_floor:.5f}; statistic: {calibration.statistic}",
    ]
    for shape in PlanShape:
        seen = {each.item for each in observations if each.shape is shape}
        law = calibration.laws.get(shape)
        if law is None:
            lines.append(
                f"{shape.value}: {len(seen)} items, too few to fit; with max_predicted_kl set, this class is declined"
            )
        else:
            lines.append(
                f"{shape.value}: {law.items} items, KL = floor + {law.scale:.4f} * risk * "
                f"exp(-{law.decay:.2f} * recomputed fraction), times {law.factor:.2f} to cover "
                f"{calibration.quantile:.0%} of the items, "
                f"valid up to risk {law.largest_risk:.2f}"
            )
    return "\n".join(lines) + "\n"
