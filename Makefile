# Two commands do all the set-up on a fresh Debian 12 or 13 machine, as root: `make demo` and `make test`.

VENV := .venv
BIN := $(VENV)/bin
# Debian's own Python: the shop runs from the host's /usr, so its interpreter must lie there.
PYTHON := /usr/bin/python3
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
PYTEST := $(BIN)/pytest --no-unexpected-skips
NATIVE := $(shell find native -name '*.[ch]') native/build_ffi.py

PACKAGES := python3-venv python3-dev gcc libc6-dev xfsprogs mmdebstrap
TEST_PACKAGES := clang btrfs-progs podman mariadb-server-core postgresql qemu-system-x86 busybox-static \
	acl e2fsprogs git iproute2 libcap2-bin procps rsync

# Tests of the C core and of what stands on it; the rest of the suite is Python alone.
TESTS_OF_NATIVE := tests/bases tests/runtime $(addprefix tests/,test_cgroup.py test_clone.py test_doctor.py \
	test_gateway.py test_owner.py test_passwd.py test_pool.py test_remove.py)

.PHONY: demo test lint unit sanitize faults sites test-vm soak bench clean system system-test

demo: $(VENV)/built
	$(BIN)/webserv-rt demo

test: lint unit sanitize faults sites test-vm

# Install those of the packages that this machine lacks; nothing is asked of the network otherwise.
define install
@missing=$$(for name in $(1); do \
	dpkg-query -W -f='$${db:Status-Status}' $$name 2>/dev/null | grep -qx installed || echo $$name; done); \
if [ -n "$$missing" ]; then echo "apt-get install" $$missing; apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi
endef

system:
	$(call install,$(PACKAGES))

system-test: system
	$(call install,$(TEST_PACKAGES))

$(VENV)/built: pyproject.toml setup.py $(NATIVE) | system
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -e '.[shop,plot]'
	touch $@

$(VENV)/tools: pyproject.toml | $(VENV)/built system-test
	$(PIP) install -e '.[shop,plot,podman,dev]'
	touch $@

# $(call build,FLAVOUR): build/FLAVOUR holds the package with the C core in that flavour (see setup.py).
build = rm -rf build/$(1) && WSRT_BUILD=$(1) $(PIP) install --no-deps --no-build-isolation --target build/$(1) .
# What is to be tested with that build starts with this. SAFEPATH: the checkout does not come before it.
with_build = PYTHONSAFEPATH=1 PYTHONPATH=$(CURDIR)/build/$(1)

lint: $(VENV)/built $(VENV)/tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p webserv_rt
	for directory in tests tests/bases tests/faults tests/runtime tests/vm; do \
		$(BIN)/mypy --disable-error-code=func-returns-value --disable-error-code=comparison-overlap \
			$$directory/*.py || exit 1; \
	done
	$(BIN)/lint-imports
	rm -rf build/clang && CC=clang $(PIP) install --no-deps --no-build-isolation --target build/clang .

unit: $(VENV)/built $(VENV)/tools
	$(PYTEST) -m 'not site' --ignore=tests/faults

# The C under AddressSanitizer and UndefinedBehaviorSanitizer. Reports go to files, since pytest holds back what a
# dying process says. Leaks are looked for once, by tests/conftest.py; only those with our C on the stack count.
# libstdc++ comes along for matplotlib, whose exceptions AddressSanitizer cannot throw otherwise.
sanitize: $(VENV)/built $(VENV)/tools
	$(call build,sanitize)
	rm -rf build/reports && mkdir build/reports
	$(call with_build,sanitize) \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so.6)" \
		ASAN_OPTIONS=leak_check_at_exit=0:log_path=$(CURDIR)/build/reports/log \
		UBSAN_OPTIONS=print_stacktrace=1:log_path=$(CURDIR)/build/reports/log \
		$(PYTEST) -m 'not slow' $(TESTS_OF_NATIVE) || { code=$$?; \
		grep -l -s -e 'ERROR: Address' -e 'CHECK failed' -e 'runtime error' build/reports/* | xargs -r cat; exit $$code; }
	! grep -h -B5 -A5 ' native/' build/reports/* 2>/dev/null

# Every call of the C core made to fail, and the owner killed at every step.
faults: $(VENV)/built $(VENV)/tools
	$(call build,faults)
	$(call with_build,faults) $(PYTEST) tests/faults

# $(call in_own_pool,COMMAND): run it with a pool that is gone afterwards.
define in_own_pool
directory=$$(mktemp -d /var/tmp/webserv-rt.XXXXXX) && export WEBSERV_RT_POOL=$$directory/pool && \
$(BIN)/webserv-rt pool create --size 16G && { $(1); code=$$?; $(BIN)/webserv-rt pool destroy --yes && \
rm -r $$directory && exit $$code; }
endef

# Real sites, built from Debian's packages.
sites: $(VENV)/built $(VENV)/tools
	$(call in_own_pool,$(PYTEST) -m site)

# The runtime on Debian's own kernel: pure cgroup v2, project quotas, overlay layers by name.
test-vm: $(VENV)/built $(VENV)/tools
	apt-cache show linux-image-amd64 >/dev/null 2>&1 || apt-get update -qq
	$(BIN)/python tests/vm/run.py --cgroup v2 --timeout 480 @tests/vm/selection

# The long forms: a thousand resets, each proven pristine; owners killed hundreds of times, and at every single step.
soak: $(VENV)/built $(VENV)/tools
	WSRT_SOAK_ROUNDS=300 $(BIN)/pytest --timeout=0 tests/soak_*.py tests/runtime/test_pristine.py tests/runtime/test_collector.py
	$(call build,faults)
	$(call with_build,faults) WSRT_FAULT_STRIDE=1 $(BIN)/pytest --timeout=0 tests/faults/test_owner_killed.py

# Print the figures; the bases of the sites stay in the default pool for the next run.
bench: $(VENV)/built $(VENV)/tools
	$(BIN)/pytest tests/bench_*.py

clean:
	rm -rf build $(VENV) webserv_rt/_init webserv_rt/_native.*.so
