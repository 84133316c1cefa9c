"""Answers scored and compared: against references, against the cold answer, and by the server's log-probabilities.

Pure functions of texts and replies. Every score takes the best value over all references.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rapidfuzz.distance import LCSseq

from sembench.http.reply import TokenLogprobs

_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_ARTICLES: Final = frozenset({"a", "an", "the"})
_OPTION: Final = re.compile(r"\s*\(?([A-H])[.):]?\)?\s*")
# "(A)" and "the answer is A" name an option, "A ferry runs" does not.
_NAMED_OPTION: Final = (
    re.compile(r"^\W*([A-H])(?=\s*$|\s*[.):,]|\s*\n)"),
    re.compile(r"\b[Aa]nswer\s*(?:is|:)?\s*:?\s*\(?([A-H])\b(?!\s+[a-z])"),
    re.compile(r"\b[Oo]ption\s+\(?([A-H])\b"),
    re.compile(r"\(([A-H])\)"),
)
_TINY: Final = 1e-12
_END: Final = "\0end of the answer"


@dataclass(frozen=True, slots=True)
class Scores:
    token_recall: float
    f1: float
    rouge_l: float
    exact_match: bool


def words_of(text: str) -> tuple[str, ...]:
    """Words without case, punctuation and English articles; every ideograph is a word.

    A text of articles alone keeps them: the option "A" is an answer.
    """
    words = tuple(_WORD.findall(text.casefold()))
    return tuple(word for word in words if word not in _ARTICLES) or words


def usable(references: Sequence[str]) -> tuple[str, ...]:
    """References with at least one word; the others cannot be scored against."""
    return tuple(reference for reference in references if words_of(reference))


def score(answer: str, references: Sequence[str]) -> Scores | None:
    """The best scores over all references; None without a usable one, which differs from a score of 0."""
    against = usable(references)
    if not against:
        return None
    words = words_of(answer)
    known = [words_of(reference) for reference in against]
    return Scores(
        token_recall=max(token_recall(words, reference) for reference in known),
        f1=max(f1(words, reference) for reference in known),
        rouge_l=max(rouge_l(words, reference) for reference in known),
        exact_match=any(exact_match(answer, reference) for reference in against),
    )


def token_recall(answer: Sequence[str], reference: Sequence[str]) -> float:
    """The fraction of the reference's words that the answer contains, repeated words counted as often as they occur."""
    return _shared_words(answer, reference) / len(reference)


def f1(answer: Sequence[str], reference: Sequence[str]) -> float:
    """The harmonic mean of precision and recall over words; their order does not count."""
    return 2 * _shared_words(answer, reference) / (len(answer) + len(reference))


def rouge_l(answer: Sequence[str], reference: Sequence[str]) -> float:
    """F-measure of the longest common subsequence of words."""
    return 2 * LCSseq.similarity(answer, reference) / (len(answer) + len(reference))


def exact_match(answer: str, reference: str) -> bool:
    """The same words, or for multiple choice the same option."""
    option = option_of_reference(reference)
    if option is not None:
        return option_of_answer(answer) == option
    return words_of(answer) == words_of(reference)


def option_of_reference(reference: str) -> str | None:
    """The option letter if the reference is nothing but an option such as "(A)", else None."""
    found = _OPTION.fullmatch(reference)
    return found.group(1) if found else None


def option_of_answer(answer: str) -> str | None:
    for pattern in _NAMED_OPTION:
        if found := pattern.search(answer):
            return found.group(1)
    return None


def is_right(scores: Scores, references: Sequence[str], threshold: float) -> bool:
    """Compare with known answers: the option must match in multiple choice, otherwise enough of an answer's words."""
    if all(option_of_reference(reference) is not None for reference in usable(references)):
        return scores.exact_match
    return scores.token_recall >= threshold


def is_kept(scores: Scores, threshold: float) -> bool:
    """Compare with the cold answer when no answer is known: enough of its words must occur in the same order."""
    return scores.rouge_l >= threshold


def is_flipped(cold: str, warm: str, cold_right: bool | None, warm_right: bool | None, threshold: float) -> bool:
    """Whether the answer changed between the arms: right became wrong, or wrong became right.

    If neither is right, or correctness is unknown, the answer flipped when the warm one differs from the cold one. Two
    right answers may be worded differently without being a flip.
    """
    if cold_right is not None and warm_right is not None and (cold_right or warm_right):
        return cold_right != warm_right
    scores = score(warm, (cold,))
    return cold.strip() != warm.strip() if scores is None else not is_kept(scores, threshold)


@dataclass(frozen=True, slots=True)
class Divergence:
    """``kl`` has one value per compared position, in nats; ``agreed_tokens`` precede the first difference."""

    kl: tuple[float, ...]
    agreed_tokens: int


def diverge(cold: Sequence[TokenLogprobs], warm: Sequence[TokenLogprobs]) -> Divergence | None:
    """KL of the server's top-k at each position of two greedy answers whose history is equal.

    Positions after the first differing token have different histories, so they are not compared. An answer that ends
    while the other continues differs at the position where it ends. None if a reply has no log-probabilities.
    """
    if not cold or not warm:
        return None
    agreed = 0
    for ours, theirs in zip(cold, warm, strict=False):
        if ours.token != theirs.token:
            break
        agreed += 1
    compared = zip(cold[: agreed + 1], warm[: agreed + 1], strict=False)
    kl = [kl_over_union(a.top, b.top) for a, b in compared if a.top and b.top]
    if agreed == len(warm) < len(cold) and (top := cold[agreed].top):
        kl.append(kl_over_union(top, _ended_instead(cold[agreed])))
    elif agreed == len(cold) < len(warm) and (top := warm[agreed].top):
        kl.append(kl_over_union(_ended_instead(warm[agreed]), top))
    return Divergence(tuple(kl), agreed)


def _ended_instead(continued: TokenLogprobs) -> dict[str, float]:
    """The distribution assumed at the end of the answer that ended; servers do not send one.

    The end of the answer gets the probability that the other answer gave its next token.
    """
    others = {token: value for token, value in continued.top.items() if token != continued.token}
    return {**others, _END: continued.top.get(continued.token, continued.logprob)}


def kl_over_union(cold: Mapping[str, float], warm: Mapping[str, float]) -> float:
    """KL(cold || warm) over every token in either top-k, all others in one bucket.

    A token missing from one side gets the highest probability it can have there: at most that of the side's least
    likely named token, and at most its part of the mass that side left unnamed. So the KL is underestimated rather
    than overestimated, and equal distributions give 0.
    """
    union = cold.keys() | warm.keys()
    ours, theirs = _complete(cold, union), _complete(warm, union)
    return max(0.0, sum(p * math.log(p / q) for p, q in zip(ours, theirs, strict=True)))


def _complete(top: Mapping[str, float], union: set[str]) -> list[float]:
    """Probabilities of the union's tokens in a fixed order, then of all other tokens together; they sum to 1."""
    named = {token: max(_TINY, math.exp(min(0.0, value))) for token, value in top.items()}
    missing = len(union) - len(named)
    rest = max(_TINY, 1.0 - sum(named.values()))
    each = max(_TINY, min(*named.values(), rest / (missing + 1)))
    values = [named.get(token, each) for token in sorted(union)]
    values.append(max(_TINY, rest - each * missing))
    total = sum(values)
    return [value / total for value in values]


def _shared_words(answer: Sequence[str], reference: Sequence[str]) -> int:
    return (Counter(answer) & Counter(reference)).total()
