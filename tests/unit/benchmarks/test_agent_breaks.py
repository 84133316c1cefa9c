"""Break replay without an engine: tokens of sessions, the turns sent, readings kept, figures and verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.agent_breaks.figures import Figures, verdicts
from benchmarks.agent_breaks.readings import Reading, ReadingFile, is_repaired
from benchmarks.agent_breaks.replay import Pause, Server, SessionCodec, block_tokens, continued_at, counters
from benchmarks.agent_breaks.sessions import ReplaySession, SessionTurn
from benchmarks.agent_breaks.tables import WIDTH, shown
from benchmarks.discovery.codec import WordCodec
from benchmarks.vllm.client import Ask, Client, Position, Reply
from benchmarks.vllm.happenings import Happenings, RequestResult

METRICS = """# HELP vllm:semblend_repaired_tokens_total text
vllm:semblend_repaired_tokens_total{engine="0"} 128.0
vllm:semblend_repaired_tokens_created{engine="0"} 1.7e+09
vllm:semblend_published_tokens_total{engine="0"} 96.0
vllm:semblend_studied_tokens_total{engine="0"} 0.0
"""


def turn(number: int, prompt: str, answer: str = "ls now", **more: Any) -> SessionTurn:
    return SessionTurn(
        turn=number,
        prompt=prompt,
        answer=answer,
        think_s=1.0,
        **{"since_break": None, "is_tool_call": True, "stale_answer": None, **more},
    )


SESSION = ReplaySession(
    "x/0",
    "tenant-0",
    "fact_in_head",
    (
        turn(0, "<|im_start|>a b c <|im_start|>d "),
        turn(1, "<|im_start|>a z c <|im_start|>d ", "9 .", since_break=0, stale_answer="4 ."),
    ),
)


class FakeClient(Client):
    """Answers what is forced; ``top`` is the token it finds most likely at the first position."""

    def __init__(self, top: int | None = None) -> None:
        self.asks: list[Ask] = []
        self._top = top

    def timed(self, ask: Ask, *, top_logprobs: int = 0) -> Reply:
        self.asks.append(ask)
        tokens = tuple(ask.forced)
        first = tokens[0] if self._top is None else self._top
        positions = tuple(
            Position({first if n == 0 else token: -0.1, 999: -3.0}, -0.1) for n, token in enumerate(tokens)
        )
        return Reply(f"r{len(self.asks)}", tokens, 5.0, 9.0, 4, positions=positions)

    def metrics(self) -> str:
        return METRICS


class FakeHappenings(Happenings):
    def result(self, request_id: str) -> RequestResult:
        return RequestResult("backend_materialized_reuse", reused_tokens=3 if request_id == "r2" else 0)


def test_messages_that_turns_share_have_the_same_tokens() -> None:
    codec = WordCodec()
    encoded = SessionCodec(codec).encode(SESSION)
    first, second = (each.prompt for each in encoded.turns)
    assert first[0] == second[0]
    assert [at for at in range(len(first)) if first[at] != second[at]] == [1]
    assert encoded.turns[1].fact == (codec.encode("9")[0], codec.encode("4")[0])


def test_a_replay_forces_answers_pauses_and_tells_reuse_from_hits() -> None:
    encoded = SessionCodec(WordCodec()).encode(SESSION)
    client, pauses = FakeClient(), list[float]()
    server = Server("idle", client, FakeHappenings(Path("none")), pauses.append)
    readings = server.replay(encoded, lambda turn: Pause(turn.think_s + 1, 0.0), {})
    assert pauses == [2.0, 2.0]
    assert [ask.forced for ask in client.asks] == [each.answer for each in encoded.turns]
    assert len({ask.salt for ask in client.asks}) == 1
    assert all(ask.reuse and ask.capture is None for ask in client.asks), "turns become donors by the server's policy"
    assert [(each.exact_tokens, each.reused_tokens) for each in readings] == [(4, 0), (1, 3)]
    assert [each.fact for each in readings] == [None, "new"]
    assert [each.is_first for each in readings] == [True, False]


def test_the_exact_hit_of_a_break_turn_has_as_many_new_tokens() -> None:
    parts = ("<|im_start|>a b ", "<|im_start|>x ls now ", "<|im_start|>d e f ")
    broken = turn(1, "".join((parts[0].replace("b", "z"), *parts[1:])), "rm it", since_break=0)
    session = SessionCodec(WordCodec()).encode(replace(SESSION, turns=(turn(0, parts[0]), broken)))
    client = FakeClient()
    readings = Server("stock", client, None, lambda _: None).replay(session, lambda _: Pause(0.0, 0.0), {})
    assert [each.arm for each in readings] == ["stock", "stock", "hit"]
    cut = continued_at(session.turns[1].prompt, session.turns[0].answer)
    assert cut is not None
    asked, hit = client.asks[1], client.asks[2]
    assert hit.salt == asked.salt
    assert hit.prompt[:cut] == asked.prompt[:cut]
    assert hit.prompt[cut:] == asked.prompt[cut:][::-1]
    assert 0 < cut < len(asked.prompt)
    assert continued_at((1, 2, 3, 2), (2,)) == 4
    assert continued_at((1, 2), (3,)) is None


def test_a_pause_after_a_blended_turn_ends_when_it_is_repaired() -> None:
    encoded = SessionCodec(WordCodec()).encode(SESSION)

    class Repairing(FakeClient):
        published = 0

        def metrics(self) -> str:
            self.published += 16
            return f'vllm:semblend_published_tokens_total{{engine="0"}} {self.published}.0'

    def replayed(max_s: float) -> tuple[list[Reading], list[float]]:
        pauses = list[float]()
        server = Server("idle", Repairing(), FakeHappenings(Path("none")), pauses.append, block_tokens=3)
        return server.replay(encoded, lambda _: Pause(0.5, max_s), {}), pauses

    readings, pauses = replayed(60.0)
    assert [each.is_blended for each in readings] == [False, True]
    assert is_repaired(readings[1])
    assert pauses == [0.5, 0.5], "what was published at the first look suffices"
    server = Server("idle", FakeClient(), FakeHappenings(Path("none")), pauses.append, block_tokens=3)
    pauses.clear()
    assert not is_repaired(server.replay(encoded, lambda _: Pause(0.5, 3.0), {})[1])
    assert pauses == [0.5, 0.5, 1.0, 1.0, 1.0], "nothing is published, so the pause takes its longest"


def test_cold_readings_share_no_namespace_and_a_stale_answer_shows() -> None:
    encoded = SessionCodec(WordCodec()).encode(SESSION)
    client = FakeClient()
    cold, distributions = Server("stock", client, None).read_cold(encoded, encoded.turns)
    assert len({ask.salt for ask in client.asks}) == 2
    known = {(each.session, each.turn): own for each, own in zip(cold, distributions, strict=True)}
    same = Server("stock", FakeClient(), None, lambda _: None).replay(encoded, lambda _: Pause(0.0, 0.0), known)
    assert [each.same_top for each in same] == [True, True]
    assert all(each.kl is not None and max(each.kl) < 1e-9 for each in same)
    assert encoded.turns[1].fact is not None
    stale = FakeClient(top=encoded.turns[1].fact[1])
    other = Server("off", stale, FakeHappenings(Path("none")), lambda _: None).replay(
        encoded, lambda _: Pause(0.0, 0.0), known
    )
    assert (other[1].fact, other[1].same_top) == ("stale", False)
    assert Figures((*cold, *other)).facts("off") == (1, 0, 1)


def test_blocks_of_another_size_decide_whether_a_repair_had_the_time() -> None:
    assert block_tokens('vllm:cache_config_info{block_size="128",x="1"} 1.0') == 128
    broken = reading(exact_tokens=0, published_tokens=0, prompt_tokens=200)
    assert not is_repaired(replace(broken, block_tokens=128))
    assert is_repaired(replace(broken, published_tokens=128, block_tokens=128))
    assert not is_repaired(replace(broken, published_tokens=128))


def test_counters_are_read_by_their_whole_name() -> None:
    assert counters(METRICS) == {"repaired_tokens": 128, "published_tokens": 96, "studied_tokens": 0}


def reading(**more: Any) -> Reading:
    given: dict[str, Any] = {
        "arm": "idle",
        "session": "x/0",
        "kind": "date",
        "turn": 0,
        "since_break": None,
        "is_first": False,
        "is_tool_call": True,
        "prompt_tokens": 100,
        "answer_tokens": 13,
        "think_s": 1.0,
        "ttft_ms": 10.0,
        "exact_tokens": 96,
    }
    return Reading(**given | more)


def session_of(arm: str, name: str, ttft: float, after: int, **broken: Any) -> list[Reading]:
    own = {"arm": arm, "session": name}
    return [
        reading(**own, is_first=True, exact_tokens=0),
        reading(**own, turn=1),
        reading(**own, turn=2, since_break=0, ttft_ms=ttft, **{"exact_tokens": 16, **broken}),
        reading(**own, turn=3, since_break=1, prompt_tokens=120, exact_tokens=after, kl=(1e-5,), same_top=True),
    ]


RUN = [
    *session_of("stock", "x/0", 80.0, 112),
    reading(arm="hit", session="x/0", turn=2, since_break=0, ttft_ms=8.0),
    *session_of("idle", "x/0", 20.0, 112, reused_tokens=64, published_tokens=96, repaired_tokens=90),
    *session_of("stock", "x/1", 80.0, 112),
    *session_of("idle", "x/1", 20.0, 48, reused_tokens=64, published_tokens=32, repaired_tokens=30),
    *session_of("stock", "x/2", 80.0, 112),
]


def test_figures_compare_sessions_that_every_arm_has_completed() -> None:
    figures = Figures.of(RUN)
    assert figures.sessions == ("x/0", "x/1")
    assert figures.over_exact_hit("idle") == [2.5], "only of sessions with a hit to compare with"
    assert figures.faster_than_stock("idle") == [4.0, 4.0]
    assert figures.faster_than_stock("idle", low=101) == []


def test_only_a_repair_that_had_the_time_is_judged_by_the_next_turn() -> None:
    figures = Figures.of(RUN)
    assert [is_repaired(r) for r in figures.at("idle", "break")] == [True, False]
    assert figures.hits_after_repair("idle") == (1, 1)
    assert figures.hits_after_repair("idle", only_repaired=False) == (1, 2)
    missed = [replace(r, exact_tokens=96) if r.session == "x/0" and r.turn == 3 and r.arm == "idle" else r for r in RUN]
    assert Figures.of(missed).hits_after_repair("idle") == (0, 1)


def test_repairs_count_as_computed_tokens() -> None:
    figures = Figures.of(RUN)
    assert figures.computed_per_session("stock") == 100 + 4 + 84 + 8
    before = figures.computed_per_session("idle", lambda r: r.prefill_tokens)
    assert figures.computed_per_session("idle") == before + (90 + 30) / 2


@pytest.mark.parametrize(("served", "word"), [(0, "PASS"), (16, "VIOLATED")])
def test_what_crosses_tenants_breaks_a_law(served: int, word: str) -> None:
    control = [
        reading(arm=arm, session="x/9", kind="other_tenant", is_first=True, exact_tokens=0) for arm in ("stock",)
    ]
    control.append(replace(control[0], arm="idle", reused_tokens=served))
    found = {verdict.name: verdict.word for verdict in verdicts(Figures.of([*RUN, *control]))}
    assert found["other tenant: tokens served"] == word


def test_without_a_control_the_law_is_not_measured() -> None:
    found = {verdict.name: verdict.word for verdict in verdicts(Figures.of(RUN))}
    assert found["other tenant: tokens served"] == "NOT MEASURED"
    assert found["changed fact: stale answers"] == "NOT MEASURED"


def test_tables_fit_a_terminal() -> None:
    text = shown(Figures.of(RUN))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "turn after" in text


def test_an_interrupted_run_continues_where_its_file_ends(tmp_path: Path) -> None:
    file = ReadingFile(tmp_path / "run.jsonl", {"seed": 1, "tokens": (1, 2)})
    assert file.read(resume=True) == ([], {})
    cold = replace(RUN[0], arm="cold")
    positions = (Position({7: -0.5, 8: -2.0}, -0.5),)
    file.add([cold], [positions])
    file.add(RUN[1:3])
    with file.path.open("a") as stream:
        stream.write('{"readings": [{"arm"')
    assert file.read(resume=True) == ([cold, *RUN[1:3]], {("x/0", 0): positions})
    assert ReadingFile(file.path, {"seed": 2}).read(resume=True) == ([], {})
    file.add(RUN[1:3])
    assert file.read(resume=False) == ([], {})
