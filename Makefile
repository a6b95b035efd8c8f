# Every target does its own set-up: a venv in .venv, then `pip install -c constraints.txt -e .[dev]`.
# The stamp makes a second call instant; an interrupted set-up is thrown away and made again.

SHELL := /bin/bash
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BENCH_JSON ?= results/runs/bench.json
BIN := $(VENV)/bin
STAMP := $(VENV)/.paftbench-installed
UNFINISHED := $(VENV)/.paftbench-unfinished
WORKERS ?= 2
TIER := not slow and not cluster and not net and not gpu

export OMP_NUM_THREADS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup quickstart gate test test-oldest test-all lint bench speed reference FORCE

help:
	@echo "make quickstart   run experiments/quickstart.yaml, then the table and the figure"
	@echo "make gate         the convergence gate: experiments/ci/quick.yaml, against its expectations and its baseline"
	@echo "make test         the fast tests, WORKERS=2 at a time"
	@echo "make test-oldest  the fast tests with the oldest torch pair"
	@echo "make test-all     the slow ones too; says which groups it skipped and why"
	@echo "make lint         ruff and mypy"
	@echo "make bench        cost benchmarks, JSON in $(BENCH_JSON)"
	@echo "make speed        a sweep of 24 trials against torchrun by hand, about ten minutes"
	@echo "make reference    NAME=EXPERIMENT [FIGURES=degree]: run it and keep its table and pictures in results/reference"

setup: $(STAMP)

quickstart: $(STAMP)
	$(BIN)/paftbench run quickstart
	$(BIN)/paftbench plot results/runs/quickstart --figure overview
	@echo "What averaging cannot repair: a large error on one rank is spread to every rank, and noise that all ranks have in common stays."

gate: $(STAMP)
	$(BIN)/paftbench check ci/quick --baseline results/baselines/ci-quick.json

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "$(TIER)" --ignore=tests/benchmarks

test-oldest:
	@mkdir -p results/runs
	@sed 's/^torch==.*/torch==2.9.1/; s/^torchvision==.*/torchvision==0.24.1/' constraints.txt > results/runs/constraints-oldest.txt
	$(MAKE) test VENV=.venv-oldest CONSTRAINTS=results/runs/constraints-oldest.txt

test-all: $(STAMP)
	@skipped=(); tier="not cluster"; \
	skipped+=("cluster: needs real servers; run by hand with: $(BIN)/python -m pytest -m cluster"); \
	if [ "$$(id -u)" != 0 ] || ! unshare --net true 2>/dev/null; then \
	  tier="$$tier and not net"; skipped+=("net: needs root and network namespaces"); fi; \
	if ! $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then \
	  tier="$$tier and not gpu"; skipped+=("gpu: torch finds no accelerator"); fi; \
	skipped+=("benchmarks: timings need the machine for themselves; run: make bench"); \
	$(BIN)/python -m pytest -rs -m "$$tier" --ignore=tests/benchmarks; status=$$?; \
	echo "skipped groups:"; printf '  %s\n' "$${skipped[@]}"; exit $$status

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

reference: $(STAMP)
	@[ -n "$(NAME)" ] || { echo "make: which experiment? NAME=reference/stale_shard" >&2; exit 2; }
	$(BIN)/paftbench run $(NAME)
	$(BIN)/python tools/keep.py results/runs/$(NAME) $(patsubst reference/%,%,$(NAME)) $(FIGURES)
	@echo "then: $(BIN)/python tools/quoted.py, which writes results/reference/README.md"

bench: $(STAMP)
	@mkdir -p $(dir $(BENCH_JSON))
	$(BIN)/python -m pytest tests/benchmarks --timeout=900 --benchmark-json=$(BENCH_JSON)

speed: $(STAMP)
	@mkdir -p results/runs
	$(BIN)/python tests/benchmarks/sweep_speed.py --json results/runs/speed.json

# The stamp holds the path it was made for: a copied or moved checkout, whose venv points elsewhere, starts afresh.
ifneq ($(shell [ -x $(BIN)/python ] && [ -x $(BIN)/paftbench ] && cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): FORCE
endif

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@set -euo pipefail; \
	recent='import sys; sys.exit(sys.version_info < (3, 11))'; \
	moved() { [ -f $(STAMP) ] && [ "$$(cat $(STAMP))" != "$(CURDIR)" ]; }; \
	if [ -e $(UNFINISHED) ] || moved || ! { $(BIN)/python -c "$$recent" && $(BIN)/python -m pip --version; } >/dev/null 2>&1; then \
	  python=; \
	  for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	    if $$name -c "$$recent" 2>/dev/null; then python=$$name; break; fi; \
	  done; \
	  [ -n "$$python" ] || { echo "make: no Python 3.11 or newer on the PATH" >&2; exit 1; }; \
	  rm -rf $(VENV); \
	  $$python -m venv $(VENV) || { rm -rf $(VENV); echo "make: $$python cannot make a venv (Debian: apt install python3-venv)" >&2; exit 1; }; \
	fi; \
	rm -f $(STAMP); touch $(UNFINISHED); \
	echo "installing paftbench into $(VENV) (the first time this downloads torch and takes minutes)"; \
	$(BIN)/python -m pip install --quiet -c $(CONSTRAINTS) -e '.[dev]'; \
	rm -f $(UNFINISHED); printf '%s' "$(CURDIR)" > $(STAMP)
