"""An https engine that tells in its answer which key it was shown. Runs in a pod: the standard library alone.

python engine_with_key.py PORT CERTIFICATE KEY
"""

from __future__ import annotations

import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"ready": True})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        shown = {name: self.headers.get_all(name) or [] for name in ("authorization", "x-api-key")}
        self._answer({"object": "chat.completion", "shown": shown})

    def _answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


if __name__ == "__main__":
    port, cert, key = sys.argv[1:]
    server = ThreadingHTTPServer(("", int(port)), Engine)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
