"""Find words that this project no longer uses: files or folders in; file, line and what to write instead out.

``python scripts/plain_words.py [PATH ...]`` reads prose (comments, docstrings, messages, Markdown) and identifiers of
tracked files. Text in backquotes and string literals without a space are wire names and are not read.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[1]
READ: Final = ("src", "tests", "benchmarks", "scripts", "examples", "docs", "README.md", "CONTRIBUTING.md", "Makefile")
SUFFIXES: Final = (".py", ".md", "Makefile")
NOT_READ: Final = ("scripts/plain_words.py", "tests/unit/scripts/test_plain_words.py")  # they quote the words


@dataclass(frozen=True, slots=True)
class Idiom:
    """``pattern`` is matched against lower-case words with single spaces between them; ``only`` limits it to paths."""

    pattern: str
    instead: str
    in_prose: bool = True
    in_identifiers: bool = True
    only: tuple[str, ...] = ("",)

    def applies_to(self, path: str) -> bool:
        return path.startswith(self.only)


_ENGINES: Final = (
    "src/semblend/integration",
    "tests/unit/semblend/integration",
    "tests/engines",
    "benchmarks/fidelity",
)
IDIOMS: Final = (
    Idiom("after all", "say what happens: 'recomputed', 'although it could be reused'"),
    Idiom("anew", "again"),
    Idiom("by and by", "incrementally, over time"),
    Idiom("for whose sake", "for which"),
    Idiom("whoever|whosoever", "name the actor: 'any caller that ...'"),
    Idiom("(?:nobody|anybody|everybody|somebody)(?:'s)?", "name the actor, or use the passive: 'was never announced'"),
    Idiom("come again", "retry later"),
    Idiom("by itself alone", "alone, on its own"),
    Idiom("counted out", "dropped and counted"),
    Idiom(
        "(?:is|are|was|were) no (?!longer|more|less|fewer|other|such|one|longest|[a-z]+er\\b)[a-z]+",
        "is not a ...",
        in_identifiers=False,
    ),
    Idiom("stands?(?! (?:for|out|in for)\\b)(?![-\\w])|stood(?! (?:for|out|in for)\\b)", "is, occurs, is at"),
    Idiom("goes on|go on|went on", "continue"),
    Idiom("(?:is|are|was|were|be|been) (?:told|said|heard)", "reported, logged, received", in_identifiers=False),
    Idiom("said|told|heard|told of", "message, summary, report", in_prose=False),
    Idiom("behind (?:position|the (?:claim|prompt|prefix|run|head|boundary|seam))", "after, beyond"),
    Idiom("foresee|foresees|foreseen|foresaw", "predict"),
    Idiom("mend|mends|mended|mending", "fix, repair"),
    Idiom("heal|heals|healed|healing", "repair"),
    Idiom("witness|witnesses", "verification positions"),
    Idiom("sitting|sittings", "attempt"),
    Idiom("second sight", "refresh on repeat"),
    Idiom("journey|journeys", "request trace"),
    Idiom("errand|errands", "job, forward job"),
    Idiom("seat|seats|seated", "placement"),
    Idiom("desk|desks", "tracker, queue"),
    Idiom("nudge|nudges|nudged", "poke, wake"),
    Idiom("fate|fates", "outcome"),
    Idiom("complaint|complaints", "problem, mismatch"),
    Idiom("settle|settles|settled|settling", "wait until done, finish"),
    Idiom("news", "report"),
    Idiom("(?:[a-z]+ )?orders", "commands", in_prose=False, only=_ENGINES),
    Idiom("study|studies|studied", "isolated prefill", only=_ENGINES),
    Idiom("^(?:least|most) [a-z0-9 ]+", "min_, max_", in_prose=False),
    Idiom("select share", "recompute_fraction", in_prose=False),
)
# Uses that are right: a regular expression of the matched words, or of the words around them in the same text.
ALLOWED: Final = (
    "there (?:is|are|was|were) no [a-z]+",
    "most common",  # collections.Counter
    "most recent",
    "least squares",
    "(?:least|most) (?:loaded|request|requests|recently|frequently)[a-z ]*",  # routing and eviction policies
    "multi news|test news hardly repeat",  # a data set of LongBench
    "phone and desk",
    "somebody will ask you about it|everybody knows that the favourite city",  # texts of measured prompts
    "nobody at \\{place\\}|visitors are told about|deposit desk detail|winter witness word",  # the same
    "settle ms|settle-ms",  # an option of sembench
    "story .number. goes on",  # text of a fake data set
    "study: OSError",  # a stage in events
)


@dataclass(frozen=True, slots=True)
class Text:
    """A stretch of prose or an identifier, and the line of the file it begins at."""

    line: int
    words: str
    is_identifier: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    path: str
    line: int
    words: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: '{self.words}' (write: {self.instead})"


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w'])(?:{pattern})(?!\w)".replace(" ", r"\s+"), re.IGNORECASE)


_PATTERNS: Final = tuple((idiom, _compiled(idiom.pattern)) for idiom in IDIOMS)
_ANY: Final = _compiled("|".join(idiom.pattern for idiom in IDIOMS))
_ALLOWED: Final = tuple(_compiled(pattern) for pattern in ALLOWED)
_CODE_SPAN: Final = re.compile(r"``.+?``|`[^`\n]+`", re.DOTALL)
_COMMENT_SIGN: Final = re.compile(r"(?m)^[ \t]*#+")


def findings(path: str, content: str) -> Iterator[Finding]:
    texts = python_texts(content) if path.endswith(".py") else [Text(1, content)]
    for text in texts:
        for idiom, line, words in _matches(text.words, text.is_identifier):
            if idiom.applies_to(path):
                yield Finding(path, text.line + line, words, idiom.instead)


@lru_cache(maxsize=1 << 16)  # the same identifiers recur
def _matches(words: str, is_identifier: bool) -> tuple[tuple[Idiom, int, str], ...]:
    """Each idiom found, the line of the text it is on, and the words themselves."""
    if not is_identifier:
        words = _CODE_SPAN.sub(_blank, _COMMENT_SIGN.sub(_blank, words))
    if not _ANY.search(words):
        return ()
    return tuple(
        (idiom, words.count("\n", 0, match.start()), " ".join(match[0].split()))
        for idiom, pattern in _PATTERNS
        if (idiom.in_identifiers if is_identifier else idiom.in_prose)
        for match in pattern.finditer(words)
        if not _is_allowed(words, match)
    )


def _blank(match: re.Match[str]) -> str:
    """The same length and lines, without words."""
    return re.sub(r"[^\n]", " ", match[0])


def _is_allowed(words: str, match: re.Match[str]) -> bool:
    return any(
        allowed.start() <= match.start() < allowed.end() for each in _ALLOWED for allowed in each.finditer(words)
    )


def python_texts(content: str) -> Iterator[Text]:
    """Comments (those of adjacent lines as one text), string literals that hold prose, identifiers as words."""
    comment: list[str] = []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] != first + len(comment):
                yield Text(first, "\n".join(comment))
                comment = []
            if not comment:
                first = token.start[0]
            comment.append(token.string)
        elif token.type == tokenize.STRING and " " in token.string.strip():
            yield Text(token.start[0], token.string)
        elif token.type == tokenize.NAME:
            yield Text(token.start[0], identifier_words(token.string), is_identifier=True)
    if comment:
        yield Text(first, "\n".join(comment))


def identifier_words(name: str) -> str:
    """``StepNews`` and ``step_news`` are both ``step news``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ").strip().lower()


def tracked_files(paths: Sequence[str]) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    return [
        name
        for name in listed.stdout.splitlines()
        if name.endswith(SUFFIXES) and name not in NOT_READ and (ROOT / name).is_file()
    ]


def folder_of(path: str) -> str:
    parts = PurePosixPath(path).parts[:-1]
    return "/".join(parts[:3] if parts[:1] in (("src",), ("tests",)) else parts[:2]) or path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=READ, help="tracked files or folders (default: the whole project)")
    parser.add_argument("--summary", action="store_true", help="print the number per folder only")
    options = parser.parse_args(arguments)
    found = [
        finding
        for path in tracked_files(options.paths)
        for finding in sorted(findings(path, (ROOT / path).read_text(encoding="utf-8")), key=lambda one: one.line)
    ]
    lines = [] if options.summary else [str(finding) for finding in found]
    folders = Counter(folder_of(finding.path) for finding in found)
    lines += [f"{number:6} {folder}" for folder, number in sorted(folders.items())]
    sys.stdout.write("".join(f"{line}\n" for line in [*lines, f"{len(found):6} in all"]))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
