"""Settings as one table: a frozen dataclass whose fields say how they are read, from where, and what they mean.

In: flags and environment variables as text, JSON or TOML values. Out: an instance of the dataclass, or a
ConfigurationError that names the setting and says what to write. The reference pages are made from the same rows.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sembase.errors import ConfigurationError
from sembase.values import InvalidValueError, Parser, shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")
_ROWS: Final = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting. ``section`` is the field of the dataclass that holds it, when it is not a field of its own."""

    name: str
    parser: Parser[Any]
    default: Any
    description: str
    variable: str = ""
    metavar: str = ""
    section: str = ""

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    def default_text(self) -> str:
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, tuple):
            return ",".join(self.default) or "none"
        return "none" if self.default in (None, "") else str(self.default)


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def setting(
    default: Any,
    parser: Parser[Any],
    description: str,
    *,
    variable: str = "",
    metavar: str = "",
) -> Any:
    """A field of a settings dataclass. ``variable`` overrides the variable made from the class's prefix."""
    known = {"parser": parser, "description": description, "variable": variable}
    known |= {"metavar": metavar or parser.metavar}
    return field(default=default, metadata={_ROWS: (known,)})


def section(default: DataclassInstance, rows: Mapping[str, tuple[Parser[Any], str]]) -> Any:
    """A field that holds a dataclass of its own; ``rows`` are those of its fields that can be set, by their names."""
    known = tuple({"name": name, "parser": parser, "description": about} for name, (parser, about) in rows.items())
    return field(default=default, metadata={_ROWS: known})


def other_default(kind: type[DataclassInstance], name: str, default: Any) -> Any:
    """An inherited setting with a default of its own."""
    return field(default=default, metadata=next(each.metadata for each in fields(kind) if each.name == name))


def rows_of(kind: type[DataclassInstance]) -> tuple[Row, ...]:
    """The table of a settings dataclass, in the order of its fields.

    A class attribute ``environment_prefix`` says that every field may also come from the environment.
    """
    prefix = getattr(kind, "environment_prefix", "")
    rows: list[Row] = []
    for each in fields(kind):
        for known in each.metadata[_ROWS]:
            if "name" in known:
                rows.append(Row(default=getattr(each.default, known["name"]), section=each.name, **known))
            else:
                variable = known["variable"] or (prefix and prefix + each.name.upper())
                rows.append(Row(name=each.name, default=each.default, **{**known, "variable": variable}))
    return tuple(rows)


def read_options(kind: type[S], given: Mapping[str, Any], where: str) -> S:
    """Options from a JSON object; an unknown key is refused. ``where`` begins every error.

    A class attribute ``removed`` says of keys that are gone what replaced them.
    """
    table, removed = rows_of(kind), getattr(kind, "removed", {})
    known = [row.name for row in table]
    for name in given:
        if name in removed:
            raise ConfigurationError(f"{where}: {name} was removed; {removed[name]}")
        if name not in known:
            near = nearest(name, known)
            raise ConfigurationError(f"{where}: '{name}' is not an option; the nearest is '{near}'")
    return _made(
        kind, {row.name: _parsed(row, given[row.name], f"{where}: {row.name}") for row in table if row.name in given}
    )


def read_settings(
    kind: type[S],
    *,
    flags: Mapping[str, str | None] | None = None,
    environment: Mapping[str, str] | None = None,
    document: Mapping[str, Any] | None = None,
    where: str = "",
) -> S:
    """Flags (by field name) win over the environment, that over the document, that over the defaults.

    Unknown names are the caller's business: several tables may share one environment. ``where`` names the document.
    """
    table = rows_of(kind)
    by_flag = {name: text for name, text in (flags or {}).items() if text is not None}
    by_variable, by_key = environment or {}, document or {}
    values: dict[str, Any] = {}
    for row in table:
        if row.name in by_flag:
            values[row.name] = _parsed(row, by_flag[row.name], row.flag, is_text=True)
        elif row.variable in by_variable:
            values[row.name] = _parsed(row, by_variable[row.variable], row.variable, is_text=True)
        elif row.name in by_key:
            value = by_key[row.name]
            values[row.name] = _parsed(row, value, f"{where}.{row.name}", is_text=isinstance(value, str))
    return _made(kind, values)


def reference_table(kind: type[DataclassInstance], columns: Sequence[str] = ("Key", "Default", "Description")) -> str:
    """The documentation of every setting, as Markdown. ``columns`` are headings that ``_CELLS`` knows."""
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines += [f"| {' | '.join(_CELLS[column](row) for column in columns)} |" for row in rows_of(kind)]
    return "\n".join(lines) + "\n"


def json_object(text: str, where: str, example: str) -> dict[str, Any]:
    """The object in ``text``; an empty text is an empty object."""
    try:
        given = json.loads(text) if text.strip() else {}
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{where}: not JSON ({error}); write an object such as {example}") from None
    if not isinstance(given, dict):
        raise ConfigurationError(f"{where}: expected a JSON object, got {type(given).__name__}")
    return given


def nearest(name: str, known: Iterable[str]) -> str:
    return difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]


def _parsed(row: Row, value: Any, where: str, *, is_text: bool = False) -> Any:
    try:
        return row.parser(value) if is_text else row.parser.from_json(value)
    except InvalidValueError as error:
        raise ConfigurationError(
            f"{where}={repr(value) if is_text else shown(value)}: expected {error.expected}"
        ) from None


def _made(kind: type[S], values: Mapping[str, Any]) -> S:
    """An instance from parsed values; what is not given keeps its default."""
    own: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for row in rows_of(kind):
        if row.name in values:
            (nested.setdefault(row.section, {}) if row.section else own)[row.name] = values[row.name]
    for each in fields(kind):
        if each.name in nested:
            default: Any = each.default
            own[each.name] = replace(default, **nested[each.name])
    return kind(**own)


def _default_cell(row: Row) -> str:
    return f"`{row.default_text() if row.variable else shown(row.default)}`"


_CELLS: Final[Mapping[str, Callable[[Row], str]]] = {
    "Key": lambda row: f"`{row.name}`",
    "TOML key (flag)": lambda row: f"`{row.name}` (`{row.flag}`)",
    "Environment": lambda row: f"`{row.variable}`",
    "Variable": lambda row: f"`{row.variable}`",
    "Default": _default_cell,
    "Description": lambda row: row.description.replace("|", "\\|"),
}
