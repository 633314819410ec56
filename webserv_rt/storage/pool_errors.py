"""What can go wrong with pools; each text says what is wrong and what to do."""

from __future__ import annotations

from webserv_rt.errors import WebservError


class PoolExists(WebservError):
    """There is something where a pool was to be created."""


class PoolNotFound(WebservError):
    """There is no pool at a path, or its image is gone."""


class PoolDamaged(WebservError):
    """A pool's own description cannot be read."""


class PoolVersionUnsupported(WebservError):
    """A pool was made by a version of this program that stores things otherwise."""


class PoolInUse(WebservError):
    """A pool cannot be destroyed because something uses it."""


class PoolSizeRefused(WebservError):
    """A pool cannot have the size asked for."""
