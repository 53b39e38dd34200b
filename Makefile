# The two commands are `make demo` and `make test`; `make help` lists the others.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install demo test starve check bench bench-peers nemesis lock clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(VENV)/.installed: pyproject.toml requirements/run.txt requirements/java.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Penstock needs Python 3.11 or later")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements/run.txt
	$(PIP) install --no-deps -e .
	$(BIN)/python -m penstock.spark.java || $(PIP) install --require-hashes -r requirements/java.txt
	@echo "making the class archive, once (about 45 s; later starts take half the time)"
	$(BIN)/python -m penstock.spark.training
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements/dev.txt
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.installed-peers: $(VENV)/.installed-dev requirements/peers.txt
	$(PIP) install --require-hashes -r requirements/peers.txt
	@touch $@

install: $(VENV)/.installed ## Everything into .venv

demo: install ## A shop in SQLite, Spark, a receiver that breaks: a minute
	$(BIN)/penstock demo

WORKERS := -n 3 --dist loadgroup --no-loadscope-reorder --max-worker-restart 0
test: check ## All checks and all tests, real servers included
	$(BIN)/python -m pytest $(WORKERS)

SHARE ?= 0.2
PERIODS ?= 0.1 1
starve: $(VENV)/.installed-dev ## All tests with a fifth of the CPU: hours; TESTS=… selects
	for period in $(PERIODS); do $(BIN)/python tests/starve.py --share $(SHARE) --period $$period \
		$(BIN)/python -m pytest $(WORKERS) $(TESTS) || exit 1; done

check: $(VENV)/.installed-dev ## Formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.installed-dev ## Every figure of the docs, measured; BASE=REVISION compares
	PENSTOCK_BENCH_BASE=$(BASE) $(BIN)/python -m bench

bench-peers: $(VENV)/.installed-peers ## Beside Debezium and micro-batches; writes docs/peers.md
	$(BIN)/python -m bench.peers

STEPS ?= 10000
KILLS ?= 100
nemesis: $(VENV)/.installed-dev ## All examples, then random faults for half an hour; SEED=7
	PENSTOCK_EXAMPLES=full $(BIN)/python -m pytest -m hypothesis $(WORKERS)
	$(BIN)/python tests/nemesis --steps $(STEPS) --kills $(KILLS) $(if $(SEED),--seed $(SEED))

COMPILE := $(BIN)/pip-compile --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe \
	--no-header --no-emit-index-url --no-emit-find-links --no-emit-options --no-annotate

lock: $(VENV)/.installed-dev ## Pin all dependencies anew
	$(PIP) install pip-tools
	$(COMPILE) -o requirements/run.txt pyproject.toml
	$(COMPILE) -o requirements/java.txt requirements/java.in
	$(COMPILE) -o requirements/dev.txt requirements/dev.in
	$(COMPILE) -o requirements/peers.txt requirements/peers.in

clean: ## Remove what make made
	rm -rf $(VENV) build dist bench/results
