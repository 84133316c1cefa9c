"""The list of words we no longer use: found in prose and identifiers, not in wire names or ordinary English."""

from __future__ import annotations

import re

import pytest
from scripts.plain_words import IDIOMS, findings, folder_of, identifier_words, main, tracked_files

FOUND = [
    "# Some tokens are computed after all.",
    "# Computed anew each time.",
    "# They leave the table by and by.",
    "# the replica for whose sake it waits",
    "# Whoever asks gets nothing.",
    "# A parent nobody told of.",
    "# Empty for anybody's making.",
    'raise ValueError("busy; come again")',
    "# read by itself alone",
    "# beyond it they are counted out",
    "raise ValueError(f\"'{origin}' is no address of a server\")",
    "# A passage stands behind two contexts.",
    "# It stood before the run.",
    "# A run that goes on.",
    "# The client is told why.",
    "said = 1",
    "class StepNews: ...",
    "# tokens behind the claim",
    "# what the law foresees",
    "# once the cause is mended",
    "# the rest is healed",
    "# checked at three witnesses",
    "max_sittings = 3",
    "second_sight = True",
    "class Journey: ...",
    "# one errand per replica",
    "seat = 1",
    "def test_a_desk_is_closed(): ...",
    "nudge()",
    "fate = 1",
    "# the complaint names the field",
    "planner.settle()",
    "LEAST_TO_CHOOSE_FROM = 768",
    "most_share = 0.5",
    "select_share = 0.05",
]
NOT_FOUND = [
    "# There is no such file; it is no longer used, and is no larger than the last one.",
    "# KL stands for the Kullback-Leibler divergence; a fake stands in for the engine.",
    'option("second_sight", "select_share", "least_x")',  # wire names
    '"""``second_sight`` is the old name of `refresh_on_repeat`."""',
    "counter.most_common(3)",
    "np.linalg.least_squares",
    "# at least one, at most three",
    "# behind a proxy",
    "health = standing = understand",
    "policy = least_loaded",
]


@pytest.mark.parametrize("line", FOUND)
def test_an_idiom_is_found_with_what_to_write_instead(line: str) -> None:
    found = list(findings("src/a.py", f"\n{line}\n"))
    assert found
    assert {finding.line for finding in found} == {2}
    assert all(finding.instead for finding in found)


@pytest.mark.parametrize("line", NOT_FOUND)
def test_wire_names_and_ordinary_english_are_not_found(line: str) -> None:
    assert [str(finding) for finding in findings("src/a.py", f"{line}\n")] == []


def test_every_idiom_has_an_example() -> None:
    everywhere = [idiom for idiom in IDIOMS if idiom.only == ("",)]
    examples = {finding.instead for line in FOUND for finding in findings("src/a.py", line)}
    assert {idiom.instead for idiom in everywhere} <= examples


def test_an_idiom_broken_over_lines_is_found_where_it_begins() -> None:
    source = 'def f():\n    """Some are computed after\n    all."""\n    # so is that: after\n    # all\n'
    assert [finding.line for finding in findings("src/a.py", source)] == [2, 4]


def test_markdown_is_read_without_its_code() -> None:
    page = "`nobody` is a user.\n\nThere nobody\nwaits.\n"
    assert [str(finding).partition(" (")[0] for finding in findings("docs/a.md", page)] == ["docs/a.md:3: 'nobody'"]


def test_words_with_another_meaning_elsewhere_are_limited_to_paths() -> None:
    source = "step_orders = 1\n# a study of caches\n"
    assert list(findings("src/semantic_kv/a.py", source)) == []
    assert len(list(findings("src/semblend/integration/a.py", source))) == 2


def test_identifiers_are_read_as_words() -> None:
    assert identifier_words("StepNews") == identifier_words("_step_news") == "step news"
    assert identifier_words("MAX_KL") == "max kl"


def test_the_report_counts_per_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert folder_of("src/semblend/plan/gates.py") == "src/semblend/plan"
    assert folder_of("README.md") == "README.md"
    code = main(["tests/unit/scripts", "--summary"])
    assert re.fullmatch(r"(\s*\d+ tests/unit/scripts\n)?\s*\d+ in all\n", capsys.readouterr().out)
    assert code in (0, 1)


def test_the_files_that_quote_the_words_are_not_read() -> None:
    assert not [name for name in tracked_files(["scripts", "tests/unit/scripts"]) if "plain_words" in name]
