"""The names that users import, and nothing else."""

from __future__ import annotations

import types

import webserv_rt
from webserv_rt.errors import WebservError

PUBLIC = {
    "Base",
    "Changes",
    "CommandTimeout",
    "ExecResult",
    "Host",
    "Instance",
    "InstanceStatistics",
    "KernelError",
    "NotReady",
    "Pool",
    "Timing",
    "WebservError",
    "World",
}


def test_public_names_are_exactly_the_list() -> None:
    assert set(webserv_rt.__all__) == PUBLIC
    assert list(webserv_rt.__all__) == sorted(webserv_rt.__all__)
    found = {
        name
        for name, value in vars(webserv_rt).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert found - {"annotations"} == PUBLIC


def test_every_public_name_is_documented_and_typed() -> None:
    for name in PUBLIC:
        value = getattr(webserv_rt, name)
        assert value.__doc__, name
        for attribute, member in vars(value).items():
            if not attribute.startswith("_") and isinstance(member, (types.FunctionType, property)):
                assert member.__doc__, f"{name}.{attribute}"


def test_errors_of_our_own_have_one_root() -> None:
    assert issubclass(webserv_rt.NotReady, WebservError)
    assert issubclass(webserv_rt.CommandTimeout, WebservError)
    assert issubclass(webserv_rt.KernelError, OSError)
