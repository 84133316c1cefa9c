"""From what the user named to a report: installation, model folder, and the check of the engine if it is here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from semblend.doctor.installation import Installation, how_to_install
from semblend.doctor.model_facts import read_model
from semblend.doctor.report import Report
from semblend.doctor.serve_command import VLLM, ServeCommand, is_ours, transfer_of, with_semblend
from semblend.doctor.verdict import Checked

# The command, whether it names our connector, whether layers are built.
Check = Callable[[ServeCommand, bool, bool], Checked]
GPU_OPTIONS: Final = {"experimental_gpu": True}


def examine_installation(
    installation: Installation,
    command: ServeCommand | None,
    check: Check,
    *,
    start: bool,
    device_type: Callable[[], str],
    fill_in: Callable[[ServeCommand], ServeCommand],
) -> Report:
    """``fill_in`` adds what ``kvmend serve`` would.

    The callables import the engine and are called only if it is installed and a model was named."""
    if command is None:
        missing = () if installation.engines else tuple(how_to_install(name) for name in ("vllm", "sglang"))
        return Report(installation, missing=missing)
    model = read_model(command.model)
    if installation.engine(command.engine) is None:
        proposed = with_semblend(command, {})
        return Report(
            installation,
            command,
            model,
            proposed_command=proposed if proposed != command else None,
            missing=(how_to_install(command.engine),),
        )
    if command.engine != VLLM:
        given = check(command, True, start)
        return Report(installation, command, given.model or model, given)
    is_connected = is_ours(transfer_of(command))
    if command.launched:
        command = fill_in(command)
    given = check(command, is_connected, start)
    options = {} if device_type() == "cpu" else GPU_OPTIONS
    proposed = with_semblend(command, options)
    if not is_connected:
        proposed = fill_in(proposed)
    is_same = (
        is_connected and transfer_of(proposed) == transfer_of(command) and set(proposed.flags) == set(command.flags)
    )
    if is_same:
        return Report(installation, command, given.model or model, given)
    rechecked = check(proposed, True, start)
    return Report(installation, command, rechecked.model or given.model or model, given, proposed, rechecked)
