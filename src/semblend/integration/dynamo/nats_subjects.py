"""Subjects on NATS: ``semantic-kv-events.<publisher>`` for events, ``semantic-kv-events-replay`` for replays."""

from __future__ import annotations

from typing import Final

from sembase.errors import ConfigurationError
from semblend.contract.donor_event import TOPIC

ALL_EVENTS: Final = f"{TOPIC}.*"
REPLAY_OF_ALL: Final = f"{TOPIC}-replay"
PUBLISHER_HEADER: Final = "Semblend-Publisher"
MAX_PUBLISHER_CHARACTERS: Final = 64


def events_subject(publisher: str) -> str:
    return f"{TOPIC}.{checked(publisher)}"


def replay_subject(publisher: str) -> str:
    return f"{REPLAY_OF_ALL}.{checked(publisher)}"


def publisher_of(subject: str) -> str:
    return subject.removeprefix(f"{TOPIC}.")


def checked(publisher: str) -> str:
    """A publisher's name is one token of a subject; in Dynamo it is the worker's instance id."""
    is_plain = all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in publisher)
    if not publisher or not is_plain or len(publisher) > MAX_PUBLISHER_CHARACTERS:
        raise ConfigurationError(
            f"a publisher's name must have 1 to {MAX_PUBLISHER_CHARACTERS} letters, digits, - or _"
        )
    return publisher
