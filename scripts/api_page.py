"""The API reference as Markdown, from signatures and docstrings. Called by ``generate_docs``."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from semblend import Decline, DeclineReason, Gates, Namespace, Planner, ReusePlan, Run
from semblend.contract import ContextRisk, Discovery, Outcome


def api_table() -> str:
    parts = [_class_page(Planner)]
    parts += [_record_page(record) for record in (Namespace, Gates, ReusePlan, Run, ContextRisk, Decline, Discovery)]
    parts += [_names_page("Reasons of a `Decline`", [reason.value for reason in DeclineReason])]
    parts += [_names_page("Outcomes", [outcome.value for outcome in Outcome])]
    return "\n".join(parts)


def _class_page(cls: type) -> str:
    lines = [f"## `{cls.__name__}{_signature(cls)}`", "", inspect.getdoc(cls) or "", ""]
    for name, member in vars(cls).items():
        function = getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        lines += [f"### `{name}{_signature(function)}`", "", inspect.getdoc(function) or "", ""]
    return "\n".join(lines)


def _record_page(cls: Any) -> str:
    lines = [f"## `{cls.__name__}`", "", inspect.getdoc(cls) or "", "", "| field | type | default |", "|---|---|---|"]
    for field in dataclasses.fields(cls):
        default = "" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
        kind = str(field.type).replace("|", "\\|")
        lines.append(f"| `{field.name}` | `{kind}` | {default if field.init else 'derived'} |")
    derived = [name for name, member in vars(cls).items() if isinstance(member, property)]
    if derived:
        lines += ["", "Derived: " + ", ".join(f"`{name}`" for name in derived) + "."]
    return "\n".join([*lines, ""])


def _names_page(title: str, names: list[str]) -> str:
    return "\n".join([f"## {title}", "", ", ".join(f"`{name}`" for name in names) + ".", ""])


def _signature(target: Any) -> str:
    signature = inspect.signature(target)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    return str(signature.replace(parameters=parameters)).replace("'", "")
