"""Words for synthetic prompts: any number of tokens by the built-in tokenizer, the same for the same seed."""

from __future__ import annotations

import random
from typing import Final

# Plain letters only: each word with its space is one token of the built-in tokenizer.
_VOCABULARY: Final = """
account advice agenda amount answer archive article author balance basis board border branch brief budget
cabin carrier case chapter charge chart claim clause client column comment concern contract copy corner cost
court credit custom damage date deal debit decision deposit desk detail device draft driver duty edge effect
engine entry error event example expert factor failure field figure file filter final finding folder form
frame freight function garden gate grant ground group guide harbour header help history holder hour house
idea image index input invoice island issue item journal judge junction label labour lease ledger letter
level licence limit line list loan location machine manual margin market matter measure meeting member memory
method minute model module month motion network night notice number object offer office option order origin
outcome output owner packet page panel paper parcel part party patent path pattern payment penalty period
permit person phase picture piece place plan plant point policy port price process product profit project
proof public quarter query question queue range rate reader reason receipt record refund region relay release
remedy rent repair reply report request reserve result return review reward right river road role room route
rule sample scale schedule scope screen season section sector seller series server service session share
shelf shift ship signal site source space staff stage state station statute step stock storage store street
study subject sum supply surface switch system table target task tax team tenant term test text theory ticket
time title token tool topic tower town track trade train transfer travel trial trust turn union unit update
usage user value vehicle vendor version vessel view voice volume vote wage wall warrant water week weight
window winter witness word work writer yard year zone
"""
_WORDS: Final = tuple(_VOCABULARY.split())


class Writer:
    """Draws texts. Two draws of twenty words or more are different for all purposes (300^20 texts)."""

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def text(self, tokens: int) -> str:
        """Exactly ``tokens`` tokens, at any position of a prompt: words, and a line break at the end."""
        return " ".join(self._random.choices(_WORDS, k=tokens - 1)) + "\n"

    def text_between(self, min_tokens: int, max_tokens: int) -> str:
        return self.text(self._random.randint(min_tokens, max_tokens))
