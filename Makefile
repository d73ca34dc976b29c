# Everything a developer or a visitor types.  `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
BUILD_STAMP := $(VENV)/.build-done
STAMP := $(VENV)/.setup-done
ENGINE_STAMP := $(VENV)/.engine-done
# Compiled modules beside their twins, without the ends of their names.
BESIDE := */*_native. */*/*_native. */*/*/*_native.
ENGINE_SOURCES := $(wildcard $(addsuffix pyx,$(BESIDE)))
# Arguments for pytest, the demo or the benchmarks, as in `make test ARGS="tests/store -q"`.
ARGS ?=
# `make test ALL=1` runs every test; docs/testing.md explains the tiers.
ALL ?=
# Tests, benchmarks and the demo start hundreds of processes.  Without compiled modules on the disk, each compiles all.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup engine wheel wheels test demo bench bench-system bench-micro lint docs site lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Compiling takes as long as installing: with two processors, both take the time of one.
setup: ## Make .venv with pinned dependencies, the project, the engine and a Java for Spark
	@$(MAKE) --no-print-directory --jobs=2 $(STAMP) $(ENGINE_STAMP)

$(BUILD_STAMP):
	@command -v $(PYTHON) > /dev/null || { \
	  echo "Sprocket needs Python 3.11 or newer; '$(PYTHON)' is not on PATH. Try: make setup PYTHON=/path/to/python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Sprocket needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make setup PYTHON=python3.12" >&2; exit 2; }
	@$(PIP) --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing pinned dependencies into $(VENV) (the first time, a few minutes)"
	@$(PIP) install --quiet --constraint requirements.lock setuptools cython
	@touch $@

$(STAMP): setup.cfg pyproject.toml requirements.lock | $(BUILD_STAMP)
	@SPROCKET_ENGINE=python PYTHONWARNINGS=ignore $(PIP) install --quiet --constraint requirements.lock --no-build-isolation \
	  --config-settings editable_mode=compat --editable '.[server,failover,metrics,proxy,dashboard,spark,taskiq,celery,dramatiq,django,faststream,fastapi,prometheus,redis,postgresql,mysql,outbox-sqlalchemy,tier,testing,demo,dev]'
	@$(BIN)/python -m spark.runtime.java_home requirements.lock
	@touch $@

# pip above compiles nothing: it would do so in a folder of its own, and all of it would be compiled here a second time.
# The compiler's output goes to a file: without a compiler it is long, and the one line after it says all.
$(ENGINE_STAMP): setup.py $(ENGINE_SOURCES) $(wildcard sprocket/engine/*/*.pxd sprocket/engine/*/*.h $(addsuffix pxd,$(BESIDE))) | $(BUILD_STAMP)
	@$(BIN)/python -m tools.wheels --use || { \
	  echo "Compiling the engine: $(words $(ENGINE_SOURCES)) modules on $$(nproc) processors"; \
	  $(BIN)/python setup.py --quiet build_ext --inplace $(FORCE) > $(VENV)/engine.log 2>&1 || cat $(VENV)/engine.log >&2; }
	@$(BIN)/python -m sprocket.engine.choice
	@touch $@

engine: ## Build the compiled engine again, if there is a C compiler
	@rm -f $(ENGINE_STAMP)
	@$(MAKE) --no-print-directory FORCE=--force $(ENGINE_STAMP)

wheel: setup ## Make a wheel with the engine in dist/
	@$(PIP) wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

wheels: setup ## Make and test wheels for x86-64 and aarch64 in dist/ (PYTHONS="python3.11 python3.12", AARCH64=folder: docs/engine.md)
	@SPROCKET_ENGINE=python $(PIP) install --quiet --constraint requirements.lock --no-build-isolation \
	  --config-settings editable_mode=compat --editable '.[wheels]'
	@$(BIN)/python -m tools.wheels $(or $(PYTHONS),$(BIN)/python) $(if $(AARCH64),--aarch64 $(AARCH64))

# Tests with real processes wait for much of their time, so there is one worker more than there are processors.
test: setup ## Tell in minutes whether something is broken (ALL=1 runs every test, ARGS="tests/store -q" some)
	$(BIN)/python -m pytest -n $$(($$(nproc) + 1)) --dist loadfile --tier $(if $(ALL),all,quick) $(ARGS)

demo: setup ## Real flights through a real cluster, a SIGKILL, and a Spark report
	$(BIN)/python -I -m examples.demo $(ARGS)

bench: setup ## What the engine should reach, and what it reaches (ARGS="--only send" for some rows)
	$(BIN)/python -m benchmarks.targets $(ARGS)

bench-system: setup ## Whole brokers beside RocketMQ and a naive control (ARGS="--quick" for a short run)
	$(BIN)/python -m benchmarks.system.run $(ARGS)

bench-micro: setup ## Single steps: frame, header, record, append, ConsumeQueue, send, pull
	$(BIN)/python -m pytest benchmarks --benchmark-only $(ARGS)

lint: setup ## Check style, types, layers and the rules for files (ruff, mypy --strict, import-linter, tests/tidy)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy examples/*.py
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n 0 tests/tidy

docs: setup ## Write from the code what docs/ says of keys, files, replication, request codes, mqadmin, figures and public names
	$(BIN)/python -m docs.pages.configuration_page docs/configuration.md
	$(BIN)/python -m docs.pages.format_page docs/format.md
	$(BIN)/python -m docs.pages.replication_page docs/replication-protocol.md
	$(BIN)/python -m docs.pages.compatibility_page docs/compatibility.md
	$(BIN)/python -m docs.pages.mqadmin_page docs/mqadmin.md
	$(BIN)/python -m docs.pages.figures_page docs/figures.md
	$(BIN)/python -m docs.pages.metrics_page docs/metrics.md
	$(BIN)/python -m docs.pages.api_page docs/api.md
	$(BIN)/python -m docs.pages.requests_page docs/engine-requests.md

site: setup ## Build the documentation site with an API reference in build/site
	@SPROCKET_ENGINE=python $(PIP) install --quiet --constraint requirements.lock --no-build-isolation \
	  --config-settings editable_mode=compat --editable '.[site]'
	$(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

lock: setup ## Write requirements.lock from what .venv holds now
	@{ grep '^#' requirements.lock; $(PIP) freeze --all --exclude pip --exclude sprocket-mq --exclude-editable | grep '==' | sort -f; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

clean: ## Remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .benchmarks *.egg-info build $(addsuffix c,$(BESIDE)) $(addsuffix *.so,$(BESIDE))
