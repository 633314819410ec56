"""User and network namespaces made ahead of an instance (native/namespace.h)."""

from __future__ import annotations

from webserv_rt._native import lib
from webserv_rt.kernel.descriptor import Descriptor
from webserv_rt.kernel.error import check, new_error


def new_user_namespace(program: Descriptor, first_id: int, count: int) -> Descriptor:
    """Make a user namespace whose ids 0..count-1 are the host's first_id..first_id+count-1.

    The first of them owns it. `program` is the static program (`open_init_program`).
    """
    error = new_error()
    return Descriptor(check(lib.wsrt_namespace_user(program.fileno(), first_id, count, error), error))


def new_network_namespace() -> Descriptor:
    """Make a network namespace that holds loopback alone, where any user may bind low ports."""
    error = new_error()
    return Descriptor(check(lib.wsrt_namespace_network(error), error))
