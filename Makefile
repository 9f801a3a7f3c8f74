# `make demo` and `make test` work from a clean clone with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test explore test-vm bench screenshots snapshots lint clean

demo: $(VENV)/.demo
	@$(BIN)/rackrate demo

# Compiled modules are kept, whatever the environment says: each of some hundred processes would compile them anew.
test: $(VENV)/.test
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m compileall -q agent pricing tui tests/support
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.support.rewritten
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -p no:cacheprovider -n 5 --dist loadfile --no-loadscope-reorder

# The property tests with new and more examples, and more kills and jobs: what they find becomes an @example.
explore: $(VENV)/.test
	RACKRATE_EXPLORE=1 $(BIN)/python -m pytest -p no:cacheprovider -n 2 $$(grep -rlE "from (hypothesis|tests.support.examples)" tests --include=test_*.py)

# Cgroups version 2 on a real kernel (user-mode Linux, no KVM), without systemd and with it as process 1.
# `make test-vm VM_TESTS=FILES` runs others there; tests/support/vm/qemurun has cpuset and PSI too, twelve times slower.
JOB_TESTS := tests/agent/jobs/test_manager.py
VM_TESTS ?= tests/vm/test_kernel.py tests/agent/isolation/test_group.py tests/agent/jobs/test_manager_recovery.py \
	$(JOB_TESTS)::test_a_job_that_swallows_its_childs_oom_kill_ends_as_oom \
	$(JOB_TESTS)::test_each_end_has_its_cause_its_figures_and_its_log \
	$(JOB_TESTS)::test_a_cancelled_job_that_ignores_the_signal_and_hides_is_gone_with_all_its_processes
VM_SYSTEMD_TESTS ?= tests/vm/test_systemd.py
VM_BOOT := PYTHONDONTWRITEBYTECODE=1 tests/support/vm/umlrun
VM_RUN := $(BIN)/python -m pytest -p no:cacheprovider

test-vm: $(VENV)/.test
	RACKRATE_VM=uml $(VM_BOOT) $(VM_RUN) $(VM_TESTS)
	RACKRATE_VM=systemd $(VM_BOOT) -s $(VM_RUN) $(VM_SYSTEMD_TESTS)

bench: $(VENV)/.test
	@for file in tests/bench/bench_*.py; do echo "== $$file"; PYTHONPATH=. $(BIN)/python $$file || exit 1; done

screenshots: $(VENV)/.demo
	PYTHONPATH=. $(BIN)/python -m tests.support.pictures screenshots
	PYTHONPATH=. $(BIN)/python -m tests.support.job_pictures screenshots
	PYTHONPATH=. $(BIN)/python -m tests.support.money_pictures screenshots
	PYTHONPATH=. $(BIN)/python -m tests.support.report_picture screenshots

# The pictures that tests/ui/test_snapshots.py compares with, as the screens look now. Look at what changed before you keep it.
snapshots: $(VENV)/.test
	RACKRATE_SNAPSHOTS=update $(BIN)/python -m pytest -q -p no:cacheprovider tests/ui/test_snapshots.py

lint: $(VENV)/.test
	$(BIN)/lint-imports

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Rackrate needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 demo"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "python3 -m venv failed: on Debian, apt-get install python3-venv"; exit 1; }

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	@echo "installing into $(VENV) ..."
	@$(PIP) install -e '.[png]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	@echo "installing into $(VENV) ..."
	@$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build *.egg-info
