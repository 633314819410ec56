"""webserv-rt gc"""

from __future__ import annotations

from webserv_rt.cli.app import JsonOption, PoolOption, app, out, print_json
from webserv_rt.collector import collect
from webserv_rt.errors import WebservError
from webserv_rt.kernel.cgroup import CgroupHost
from webserv_rt.storage.pool import Pool


@app.command()
def gc(pool: PoolOption, as_json: JsonOption = False) -> None:
    """Remove what processes that were killed left behind; what belongs to live ones is not touched."""
    with Pool.open(pool) as opened, CgroupHost() as cgroups:
        collected = collect(opened, cgroups)
    if as_json:
        found = {"owners": collected.owners, "processes": collected.n_processes, "left": collected.left}
        print_json(found)
    elif collected.owners:
        out.print(f"removed {len(collected.owners)} dead owners with {collected.n_processes} processes")
    elif not collected.left:
        out.print("nothing to remove")
    if collected.left:
        raise WebservError("not removed: " + "; ".join(collected.left))
