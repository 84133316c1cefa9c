"""Names on NATS: ``semantic-kv-events.<publisher>`` for what is said, ``....replay`` for what is asked again."""

from __future__ import annotations

from typing import Final

from sembase.errors import ConfigurationError
from semblend.contract.donor_event import TOPIC

EVERYBODY: Final = f"{TOPIC}.*"
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
    """In Dynamo a publisher is named by its worker's instance id; a name is one token of a subject."""
    is_plain = all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in publisher)
    if not publisher or not is_plain or len(publisher) > MAX_PUBLISHER_CHARACTERS:
        raise ConfigurationError(f"a publisher's name is 1 to {MAX_PUBLISHER_CHARACTERS} letters, digits, - or _")
    return publisher
