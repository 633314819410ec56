# Two commands do all the set-up on a fresh Debian 12 or 13 machine, as root: `make demo` and `make test`.

VENV := .venv
BIN := $(VENV)/bin
# Debian's own Python: the shop runs from the host's /usr, so its interpreter must lie there.
PYTHON := /usr/bin/python3
NATIVE := $(shell find native -name '*.[ch]' -o -name build_ffi.py)

PACKAGES := python3-venv python3-dev gcc libc6-dev make xfsprogs mmdebstrap util-linux
TEST_PACKAGES := clang libclang-rt-dev btrfs-progs podman mariadb-server postgresql qemu-system-x86 busybox-static \
	cpio rsync acl attr libcap2-bin curl wrk

.PHONY: demo test lint unit sanitize faults sites vm soak bench clean system system-test

demo: $(VENV)/built
	$(BIN)/webserv-rt demo

test: $(VENV)/tools system-test lint unit sanitize faults sites vm

# What the Debian packages above lack on this machine is installed; nothing is asked of the network otherwise.
define install
	@missing=$$(for name in $(1); do dpkg-query -W -f='$${db:Status-Status}' $$name 2>/dev/null | grep -qx installed \
		|| echo $$name; done); \
	if [ -n "$$missing" ]; then apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi
endef

system:
	$(call install,$(PACKAGES))

system-test: system
	$(call install,$(TEST_PACKAGES))

$(VENV)/built: pyproject.toml setup.py $(NATIVE) | system
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[shop,plot]'
	touch $@

$(VENV)/tools: pyproject.toml $(VENV)/built
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[shop,plot,podman,dev]'
	touch $@

lint: $(VENV)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/tools
	$(BIN)/pytest -m 'not site'

# Every system call of the C core made to fail, and the owner killed at every step.
faults: $(VENV)/tools
	rm -rf build/faults
	WSRT_BUILD=faults $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation \
		--target build/faults .
	PYTHONPATH=build/faults $(BIN)/pytest tests/faults

clean:
	rm -rf build $(VENV)
