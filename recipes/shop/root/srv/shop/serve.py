"""Serve the shop: one process, two worker threads, on 127.0.0.1:SHOP_PORT (80)."""

import gc
import os
import signal
import socket
import sys

# Start-up allocates a great deal and frees almost nothing: collecting meanwhile is time lost.
gc.disable()

# Listening comes before the imports: who connects while Django loads waits for the answer, instead of
# being refused and having to try again.
listener = socket.create_server(("127.0.0.1", int(os.environ.get("SHOP_PORT", "80"))), backlog=512)

import bootstrap  # noqa: E402

bootstrap.add_virtual_environment()

from shop.server import serve  # noqa: E402

signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
serve(listener)
