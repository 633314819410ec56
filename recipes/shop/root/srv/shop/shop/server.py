"""The WSGI server around Django."""

import gc
import logging
import socket

import waitress
from django.core.wsgi import get_wsgi_application


def serve(listener: socket.socket) -> None:
    """Answer requests on `listener` until the process is told to end; warnings and errors go to stderr."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # It warns of every request that waits for a thread, which two requests at once make normal.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    application = get_wsgi_application()
    # What start-up made lives as long as the process: the collector need not look at it, nor write to its
    # pages, ever again.
    gc.freeze()
    gc.enable()
    waitress.serve(
        application,
        sockets=[listener],
        threads=2,
        ident=None,
        asyncore_use_poll=True,
        # An idle shop sleeps: hundreds of them share two cores.
        asyncore_loop_timeout=30,
        max_request_body_size=8 * 1024 * 1024,
    )
