"""Run hundreds of isolated copies of a web application from one base; put each back in milliseconds."""

from webserv_rt.changes import Changes
from webserv_rt.command import CommandTimeout, ExecResult
from webserv_rt.errors import WebservError
from webserv_rt.host import Host
from webserv_rt.instance import Instance, Timing
from webserv_rt.kernel.error import KernelError
from webserv_rt.statistics import InstanceStatistics
from webserv_rt.storage.base import Base
from webserv_rt.storage.pool import Pool
from webserv_rt.strategy import NotReady
from webserv_rt.world import World

__all__ = [
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
]
