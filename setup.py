"""Build the package: the cffi extension (native/build_ffi.py), the static pid-1 program, the shipped data.

WSRT_BUILD selects the flavour: `release` (default), `sanitize` (ASan and UBSan) or `faults` (every system
call of the C code can be made to fail, see native/faults.h).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
DATA = ("recipes", "cgroup_profiles")
sys.path.insert(0, str(ROOT / "native"))

from build_ffi import INIT_SOURCES, compile_flags  # noqa: E402  (lives beside the C it describes)


class BuildPackage(build_py):
    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        package = Path(self.build_lib) / "webserv_rt"
        if package.exists():
            shutil.rmtree(package)  # an earlier build may have left what has been deleted since
        super().run()
        for name in DATA:
            ignored = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(ROOT / name, package / "_data" / name, ignore=ignored)


class BuildNative(build_ext):
    def run(self) -> None:
        self.force = True  # what another flavour left in build/ looks up to date
        super().run()
        package = ROOT / "webserv_rt" if self.inplace else Path(self.build_lib) / "webserv_rt"
        self.build_init(package / "_init" / "wsrt-init")

    def build_init(self, output: Path) -> None:
        """Compile pid 1 statically: it runs inside instances whose root may hold no libc at all."""
        output.parent.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CC", "cc")
        sources = [str(ROOT / "native" / name) for name in INIT_SOURCES]
        command = [compiler, *compile_flags(for_init=True), "-static", "-o", str(output), *sources]
        subprocess.run(command, check=True)


setup(
    packages=find_packages(include=["webserv_rt", "webserv_rt.*"]),
    package_data={"webserv_rt": ["py.typed"]},
    zip_safe=False,
    cffi_modules=["native/build_ffi.py:ffi"],
    cmdclass={"build_py": BuildPackage, "build_ext": BuildNative},
    # cffi's code keeps to the limited API: one wheel serves every Python from 3.10 on.
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
