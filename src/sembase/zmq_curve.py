"""ZeroMQ with CURVE: certificates in files (``zmq.auth.create_certificates``) in, sockets that authenticate out.

A publisher has a key pair; subscribers know its public key, so that another process cannot publish in its place, and
messages are encrypted. A publisher may also list the subscribers it admits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

from sembase.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class KeyPair:
    public: bytes
    secret: bytes


@dataclass(frozen=True, slots=True)
class CurveClient:
    """A subscriber's side: the publisher it expects, and its own keys."""

    server_public: bytes
    own: KeyPair

    def apply(self, socket: Any) -> None:
        """Before the socket connects."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.server_public)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.own.secret)


@dataclass(frozen=True, slots=True)
class CurveServer:
    """A publisher's side. ``clients`` is a folder of public certificates; None admits all who know the publisher's."""

    own: KeyPair
    clients: Path | None = None

    def apply(self, socket: Any) -> None:
        """Before the socket binds."""
        socket.setsockopt(zmq.CURVE_SERVER, True)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.own.secret)

    def authenticator(self, context: Any) -> ThreadAuthenticator | None:
        """Checks subscribers of all sockets of ``context`` on a thread of its own, until stopped."""
        if self.clients is None:
            return None
        made = ThreadAuthenticator(context)
        made.start()
        made.configure_curve(domain="*", location=str(self.clients))
        return made


def open_curve_client(server_key_file: Path, own_key_file: Path | None) -> CurveClient:
    """Without keys of its own a subscriber takes new ones, which a publisher with a list of subscribers refuses."""
    public, _ = _certificate(server_key_file)
    own = KeyPair(*zmq.curve_keypair()) if own_key_file is None else read_key_pair(own_key_file)
    return CurveClient(public, own)


def open_curve_server(key_file: Path, clients: Path | None) -> CurveServer:
    if clients is not None and not clients.is_dir():
        raise ConfigurationError(f"{clients}: not a folder of public certificates (*.key)")
    return CurveServer(read_key_pair(key_file), clients)


def read_key_pair(path: Path) -> KeyPair:
    public, secret = _certificate(path)
    if secret is None:
        raise ConfigurationError(f"{path}: holds no secret key; name the file that ends in .key_secret")
    return KeyPair(public, secret)


def _certificate(path: Path) -> tuple[bytes, bytes | None]:
    try:
        return zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{path}: not a CURVE certificate ({error}); make one with zmq.auth.create_certificates"
        ) from None
