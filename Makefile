# Two commands matter: `make demo` shows it, `make test` proves it. Both set up everything they need.
.PHONY: demo test test-all test-strict lint types contracts unit plain-user other-pythons test-pythons test-agents faults \
    faults-long storm docs pages screens bench bench-check lock clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Where it is set, each of the processes that collect tests would compile all of them anew.
unexport PYTHONDONTWRITEBYTECODE

demo: $(STAMP)
	@$(BIN)/python demo/demo.py

test: $(STAMP) lint types contracts unit plain-user other-pythons

# Also the cases that `make test` leaves out for want of time.
test-all: $(STAMP) lint types contracts
	HOLDFAST_TEST_ALL=1 $(MAKE) unit

# The proofs that need a quiet machine or much time: every number as the requirement has it, one test at a time, then
# the whole storms. Half an hour. tests/architecture/test_requirements.py: no switch of a test without a target.
test-strict: $(STAMP)
	@./scripts/setup_engine.sh
	HOLDFAST_TEST_STRICT=1 HOLDFAST_LEAKED_COUNT=1000 $(BIN)/pytest -q $(PYTEST_ARGS) \
	    tests/hostile/test_killed_from_outside.py tests/hostile/test_endings.py tests/acceptance/runs/test_stop.py \
	    tests/acceptance/runs/test_walking_skeleton.py tests/acceptance/health/test_health.py tests/tui/test_crashes.py \
	    tests/acceptance/workflows/test_parallel_stages.py tests/acceptance/workspaces/test_leaked.py \
	    tests/acceptance/tasks/test_many.py tests/faults -k "not matrix"
	HOLDFAST_TEST_STOPPED_FOR=100 $(BIN)/pytest -q $(PYTEST_ARGS) tests/acceptance/workflows/test_parallel_stages.py -k stopped
	HOLDFAST_STORM_FIRES=200 $(BIN)/pytest -q -s $(PYTEST_ARGS) tests/faults/test_swarm_storm.py
	HOLDFAST_TEST_OUTAGE=1 $(BIN)/pytest -q $(PYTEST_ARGS) tests/acceptance/dispatch/test_holds.py -k fifty
	HOLDFAST_TEST_TRACKERS=1 $(BIN)/pytest -q -n $$(nproc) $(PYTEST_ARGS) tests/acceptance/tasks/test_trackers.py
	HOLDFAST_FUZZ_ENDS=500 HOLDFAST_TEST_WORKER_EXAMPLES=200 HOLDFAST_TEST_SCHEDULES=200 HOLDFAST_CHECKPOINT_FUZZ_COUNT=60 \
	    HOLDFAST_FUZZ_MERGES=30 $(BIN)/pytest -q -n $$(nproc) $(PYTEST_ARGS) tests/core/workflows/test_next_stage.py \
	    tests/integration/supervisor/test_always_an_end.py tests/integration/supervisor/test_workers.py \
	    tests/integration/supervisor/test_schedule_model.py tests/fuzz/test_checkpoint_states.py \
	    tests/acceptance/workspaces/test_merge.py
	HOLDFAST_TEST_SOAK=240 $(BIN)/pytest -q -s $(PYTEST_ARGS) tests/acceptance/runs/test_soak.py

lint: $(STAMP)
	$(BIN)/ruff check src tests demo scripts bench
	$(BIN)/ruff format --check src tests demo scripts bench

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports --no-cache

# Twice the cores: most tests wait for real processes, not for the CPU.
unit: $(STAMP)
	@./scripts/setup_engine.sh
	@./scripts/setup_git.sh
	@./scripts/setup_agents.sh claude codex
	@$(BIN)/python -m compileall -q src tests # where PYTHONDONTWRITEBYTECODE is set each process would do it anew
	$(BIN)/pytest -n $$(( $$(nproc) * 2 )) --dist=worksteal $(PYTEST_ARGS)

# A part of the tests (tests/plain_user.txt: some of every room) once more, as a plain user with Debian's own Python.
plain-user: $(STAMP)
	@./scripts/test_plain_user.sh $(VENV)

# `holdfast top` once more with each other Python of this machine: it once started with 3.11 only.
other-pythons: $(STAMP)
	@./scripts/test_pythons.sh $(VENV) tests/tui/test_first_look.py tests/tui/test_leaving.py

# All of the tests with every Python of this machine from 3.11 on, as this user and, where this is root, as a plain user.
test-pythons: $(STAMP)
	@./scripts/test_pythons.sh $(VENV)

# Every real agent CLI against the stub of its provider (docs/stub-llm.md); `unit` drives claude and codex only.
test-agents: $(STAMP)
	@./scripts/setup_agents.sh
	HOLDFAST_TEST_AGENTS=all $(BIN)/pytest -n $$(nproc) --dist=worksteal -m agents $(PYTEST_ARGS); \
	    status=$$?; PYTHONPATH=. $(BIN)/python scripts/generate_docs.py; exit $$status

# The fault campaign (docs/faults.md): one table of families, cases and violations, then the mutants. FAULTS_ARGS: --seed N,
# --only FAMILY, ...; RECORD=1 keeps the figures for docs/reliability.md (then: make docs).
faults: $(STAMP)
	@./scripts/setup_engine.sh
	@./scripts/setup_git.sh
	$(BIN)/python -m tests.harness.campaign $(if $(RECORD),--record docs/campaign.json) $(FAULTS_ARGS)

# All of it, every await walk, more fuzzing: hours. FAULTS_ARGS="--seed N --go-on FILE" goes on where it was interrupted.
faults-long: $(STAMP)
	@./scripts/setup_engine.sh
	@./scripts/setup_git.sh
	$(BIN)/python -m tests.harness.campaign --long $(FAULTS_ARGS)
	HOLDFAST_WALK_ALL=1 $(BIN)/pytest -q -n $$(nproc) tests/faults -k walk
	HOLDFAST_FUZZ_COUNT=10000 HOLDFAST_FUZZ_SEED=$$(date +%s) $(BIN)/pytest -q -n $$(nproc) tests/fuzz
	HOLDFAST_TREE_FUZZ_COUNT=1000 HOLDFAST_TREE_FUZZ_SEED=$$(date +%s) $(BIN)/pytest -q -s -n $$(nproc) tests/fuzz/test_tree_states.py
	HOLDFAST_LEAKED_COUNT=1000 $(BIN)/pytest -q -s tests/acceptance/workspaces/test_leaked.py
	HOLDFAST_ROOT_RACES=10000 HOLDFAST_ROOT_SYSTEMD=1 $(BIN)/pytest -q tests/hostile/test_root_sweep.py tests/hostile/test_systemd.py

# Git against us: killed at 120 of its system calls, failing, hanging or dying at its every call; many tasks and the
# user in one repository; a thousand leaked worktrees. Half an hour.
storm: $(STAMP)
	HOLDFAST_GIT_KILLS=50 HOLDFAST_GIT_SHIM_ALL=1 HOLDFAST_STORM=1 $(BIN)/pytest -q tests/hostile/test_git_killed.py \
	    tests/hostile/test_git_shim.py tests/hostile/test_shared_repository.py

# Regenerates every page that is derived from the code (tests fail while one is stale).
docs: $(STAMP)
	PYTHONPATH=. $(BIN)/python scripts/generate_docs.py

# Plays the commands of README, tutorial and runbook with the real Claude Code against the stub, and writes what they print.
pages: $(STAMP)
	@./scripts/setup_agents.sh claude
	PYTHONPATH=. $(BIN)/python -m tests.live.test_played_pages

# Draws every screen of `holdfast top` from a real run: docs/pictures. Writes their text: tests/golden/top.
screens: $(STAMP)
	$(BIN)/python scripts/make_screens.py
	HOLDFAST_WRITE_SCREENS=1 $(BIN)/pytest -q $(PYTEST_ARGS) tests/tui/test_snapshots.py

# Measures the goals against plain sqlite3, DBOS, xargs, supervisord and circus, and keeps the result (bench/results);
# `make docs` renders it. A benchmark that fails is reported, the rest goes on, and the exit code is 1. QUICK=1: less of everything, nothing kept; BENCH_ARGS="--only processes": only that, nothing
# kept. What cannot be installed is skipped by name and reason.
bench: $(STAMP) $(VENV)-bench/.installed
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(BENCH_ARGS)

# Compares exact counts and the supervisor's CPU time per task with the last kept run (bench/results/history.jsonl).
bench-check: $(STAMP)
	$(BIN)/python -m bench --check

$(VENV)-bench/.installed: scripts/setup_bench.sh requirements-bench.lock $(STAMP)
	@./scripts/setup_bench.sh $(VENV)-bench $(BIN)/python
	@touch $@

# Resolves the dependencies of pyproject.toml anew and writes the exact versions with their hashes.
lock:
	python3 -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install -q pip-tools
	$(VENV)-lock/bin/pip-compile -q --extra dev --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url \
	    --no-emit-find-links --no-header --no-annotate --upgrade -o requirements.lock pyproject.toml
	$(VENV)-lock/bin/pip-compile -q --extra bench --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url \
	    --no-emit-find-links --no-header --no-annotate --upgrade -o requirements-bench.lock pyproject.toml
	rm -rf $(VENV)-lock

$(STAMP): scripts/setup.sh requirements.lock pyproject.toml
	@./scripts/setup.sh $(VENV)
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-bench $(VENV)-3.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
