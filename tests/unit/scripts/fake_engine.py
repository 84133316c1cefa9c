"""A process that behaves like an engine server: a child of its own, a health page, and the ways to go wrong.

``fake_engine.py PORT MODE CHILD_FILE``; modes: ``healthy``, ``dies``, ``never_healthy``, ``stubborn`` (no SIGTERM),
``busy`` (every second health request is refused).
The child's id lands in CHILD_FILE, a file in the temporary folder is left behind, as engines do.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Health(BaseHTTPRequestHandler):
    healthy = True
    is_busy = False

    def do_GET(self) -> None:
        if self.is_busy:
            Health.healthy = not self.healthy
        self.send_response(200 if self.healthy and self.path == "/health" else 503)
        self.end_headers()


def main() -> int:
    port, mode, child_file = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    child_file.write_text(str(child.pid))
    Path(tempfile.gettempdir(), f"left-by-{port}").touch()
    print("\n".join(f"line {n}" for n in range(100)), flush=True)
    if mode == "dies":
        print("out of memory, said the engine", flush=True)
        return 7
    Health.healthy = mode != "never_healthy"
    Health.is_busy = mode == "busy"
    HTTPServer(("127.0.0.1", port), Health).serve_forever()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
