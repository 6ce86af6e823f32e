# One command per task, the same locally and in CI. Each task installs its requirements into .venv and .venvs/.
#
#   make demo           build from source, start a cluster and an operator, and show the status of a handled object
#   make test           all tests
#   make test-fast      unit and contract tests: about a minute after the first build
#   make test-newest    unit and behaviour tests under the newest Python that is installed
#   make lint           all lints, as CI runs them
#   make operators      complete operators, under kopf-rs and under Kopf 1.45
#   make docs           the HTML documentation, in site/
#   make helm           the helm of a test, built with Go
#   make caches         the memory of caches with 100,000 objects, and readers under load
#   make monitoring     the metrics, the alerts and the dashboard, with promtool (of the Debian package prometheus)
#   make wheel          the optimised wheel and the metadata-only wheel `kopf`, in dist/ (see docs/install.md)
#   make test-wheel     the tests of the optimised wheel: its size, licences, dependencies
#   make explore        long runs of three model explorers: minutes; EXPLORE_STATES and EXPLORE_RUNS set their length
#   make crash          crash and restart an operator at every request and every return of a handler: minutes
#   make leadership     leader election between processes: 20 hand-overs, 10,000 objects, a candidate of client-go (needs Go)
#   make schedules      the schedules of reconciliations, with 5,000 primaries and random triggers from five seeds: minutes
#   make replicas       three replicas under 200 random kills, stops and partitions: minutes; REPLICA_ROUNDS, REPLICA_SEED
#   make soak           a mixed load with random faults for an hour (SOAK_MINUTES); checks for leaks and lost changes
#   make load           100,000 objects and a burst of updates; prints times and memory
#   make faults         the fault tests on a real control plane (needs KUBEBUILDER_ASSETS)
#   make faults-reference   the same faults under Kopf 1.45; prints a table and asserts nothing
#   make conformance    the embedded API server, compared with recorded answers of kube-apiserver
#   make fuzz           all fuzz targets, FUZZ_SECONDS each (needs cargo-fuzz and a nightly compiler)
#   make lock           pin the versions of requirements/*.in again; LOCK_ARGS=--upgrade takes newer ones
#   make lint-workflows   the workflows of GitHub, with actionlint (needs Go and the network)
#   make audit          security advisories for our dependencies (needs cargo-deny and the network)
#   make bench          the benchmarks
#   make bench-peers    the benchmarks, also of programs with kube-rs and with controller-runtime (needs Go)
#   make figures        the benchmarks, and their figures in README.md and docs/performance.md; VERSION='version 0.1.0'
#   make differential   compare kopf-rs with Kopf 1.45 on a real control plane (needs KUBEBUILDER_ASSETS)
#   make differential-part   a sixth of it, a different one each day; CI runs this
#
# Needed: Rust (rustup or any 1.95+), Python 3.11+, a C compiler, package registries.

SHELL := /bin/bash -euo pipefail
.DEFAULT_GOAL := help
.SUFFIXES:

PYTHON ?= python3.11
VENV ?= .venv
REFERENCE ?= .venvs/reference
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# The number of parallel test processes. Most tests wait for an operator or a server. Files differ much in their duration, so that
# an idle process takes tests from another one.
PYTEST_JOBS ?= 6
PARALLEL = $(if $(AGAIN),,-n $(PYTEST_JOBS) --dist worksteal)

# Each run of pytest or cargo writes the failed tests with their errors into RESULTS/NAME.json. `make AGAIN=1 test-python` runs the
# failed tests of the last run once more, without other tests running at the same time.
RESULTS ?= target/results
AGAIN ?=
# Arguments: the name of the run, the interpreter.
PYTEST_IN = $(2) -m pytest -ra -o cache_dir=$(RESULTS)/$(1).cache \
    -p tests.support.results --results $(RESULTS)/$(1)$(if $(AGAIN),.again).json \
    $(if $(AGAIN),--last-failed --last-failed-no-failures none)
PYTEST = $(call PYTEST_IN,$@,$(BIN)/python)
# The time limit of all Rust tests together, in seconds, without compilation. Python tests have a limit each (pyproject.toml).
# There is no limit in a terminal: under `timeout`, Ctrl-C would not reach the tests.
RUST_LIMIT ?= 900
LIMITED := $(shell test -t 0 || echo timeout --kill-after=10 $(RUST_LIMIT))

# Build the extension for this interpreter, regardless of the PATH.
export PYO3_PYTHON := $(abspath $(BIN)/python)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Maturin sets this too. Without it, cargo would recompile all dependents of pyo3.
export PYO3_BUILD_EXTENSION_MODULE := 1
unexport VIRTUAL_ENV CONDA_PREFIX
# Pytest spends most of its start on the assertions of the tests, unless it may keep the result.
unexport PYTHONDONTWRITEBYTECODE
# Control planes and kubectl, which are written in Go, collect garbage less often.
export GOGC ?= 400

# The development profile and the same features for the package in .venv and for all tests, so that nothing is compiled twice. Only
# `make wheel` and the benchmarks build the optimised extension.
CARGO_TESTS := --workspace --features kopf-py/testing

RUST := Cargo.toml Cargo.lock $(shell find rust -name '*.rs' -o -name 'Cargo.toml')
PACKAGE := $(shell find python/kopf -name '*.py' -o -name '*.pyi' -o -name 'py.typed')

.PHONY: help
help:
	@sed -n '/^#   make/s/^# *//p' Makefile

# --- The environments. `make lock` pins what requirements/*.in ask for, for all supported versions of Python and platforms.

# --no-compile: Python compiles the modules that it imports; pip would compile all, and client libraries have thousands.
LOCK ?= .venvs/lock

.PHONY: lock
lock:
	test -x $(LOCK)/bin/uv || $(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/python -m pip install --quiet --no-compile -r requirements/lock.txt
	cd requirements && for name in *.in; do \
	    ../$(LOCK)/bin/uv pip compile --quiet --universal --python-version 3.11 --no-header $(LOCK_ARGS) \
	        $$name --output-file $${name%.in}.txt; \
	done

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.tools: requirements/dev.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile -r requirements/dev.txt
	@touch $@

$(REFERENCE)/.installed: requirements/reference.txt
	$(PYTHON) -m venv $(REFERENCE)
	$(REFERENCE)/bin/python -m pip install --quiet --no-compile -r requirements/reference.txt
	@touch $@

# --- The wheel and its installation.

# The binary contains no paths of the build machine; the wheel contains the licences of all linked crates.
REMAP := --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo --remap-path-prefix=$(CURDIR)=/kopf-rs
LICENCES := python/kopf/THIRD-PARTY.txt

$(LICENCES): Cargo.lock scripts/licences.py | $(BIN)/python
	$(BIN)/python scripts/licences.py $@

# The optimised wheel.
dist/.built: pyproject.toml $(RUST) $(PACKAGE) $(LICENCES) | $(VENV)/.tools
	rm -f dist/kopf_rs-*.whl
	@echo 'Building the wheel, optimised: for the first time, 5 to 10 minutes on two cores.'
	RUSTFLAGS="$${RUSTFLAGS:-} $(REMAP)" $(BIN)/maturin build --release --locked $$([ -t 2 ] || echo --quiet) \
	    --interpreter $(BIN)/python --out dist
	@touch $@

# The metadata-only wheel `kopf`, which requires kopf-rs, for packages that require `kopf`.
dist/.metadata: packaging/kopf/pyproject.toml packaging/kopf/README.md | $(VENV)/.tools
	rm -f dist/kopf-*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist packaging/kopf
	@touch $@

# The wheel of the development profile, for the demo and the tests. Its feature `testing` lets tests send commands to the Python
# bindings without an engine, and adds features of dependencies that the tests need, so that both use the same compiled crates.
WHEELS := target/wheels

$(WHEELS)/.built: pyproject.toml $(RUST) $(PACKAGE) $(LICENCES) | $(VENV)/.tools
	rm -f $(WHEELS)/kopf_rs-*.whl
	@echo 'Building the wheel, not optimised: for the first time, 2 to 4 minutes on two cores.'
	$(BIN)/maturin build --profile dev --locked --features testing $$([ -t 2 ] || echo --quiet) \
	    --interpreter $(BIN)/python --out $(WHEELS)
	@touch $@

$(VENV)/.installed: $(WHEELS)/.built
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps $(WHEELS)/kopf_rs-*.whl
	$(BIN)/python -m pip install --quiet $(WHEELS)/kopf_rs-*.whl
	@touch $@

.PHONY: wheel sdist
wheel: dist/.built dist/.metadata
	@ls -l dist/*.whl
	@ls dist/kopf_rs-*.whl | sed -n 's/.*-\(manylinux_\([0-9]*\)_\([0-9]*\)_.*\)\.whl/\
	The tag \1: for Linux with glibc \2.\3 or newer, as on this machine. Wheels for older systems are\
	built in containers by .github\/workflows\/wheels.yml./p'

sdist: | $(VENV)/.tools
	rm -f dist/*.tar.gz
	$(BIN)/maturin sdist --out dist
	@ls -l dist/*.tar.gz

# --- The tasks.

.PHONY: demo
demo: $(VENV)/.installed
	$(BIN)/python -m scripts.demo

.PHONY: test test-rust test-bindings test-python test-embedded

# All parts run, also after a failure. The Rust tests wait a lot at their end, and the others are small.
test:
	@failed=; \
	$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target test-rust test-bindings test-embedded || failed=1; \
	$(MAKE) --no-print-directory test-python || failed=1; \
	[ -z "$$failed" ] || { echo 'Some parts of make test have failed.'; exit 1; }

# Without MAKEFLAGS: rustdoc would look for the job server of `make`, and warn.
test-rust: | $(BIN)/python
	MAKEFLAGS= cargo test $(CARGO_TESTS) --quiet --no-run
	MAKEFLAGS= $(LIMITED) $(BIN)/python scripts/cargo_test.py $(RESULTS)/$@$(if $(AGAIN),.again).json \
	    $(if $(AGAIN),--again $(RESULTS)/$@.json) $(CARGO_TESTS)

# They send commands to the bindings, or inject panics: one at a time.
BINDINGS := tests/units/bindings tests/faults/test_panics.py

test-bindings: $(VENV)/.installed
	$(PYTEST) $(BINDINGS) $(PYTEST_ARGS)

# The tests that need no cluster, without the type checkers.
.PHONY: test-fast
test-fast: $(VENV)/.installed
	$(LIMITED) cargo test $(CARGO_TESTS) --quiet --lib
	$(PYTEST) -n $(or $(FAST_JOBS),auto) -q tests/units tests/contract \
	    --deselect tests/contract/test_typing.py $(PYTEST_ARGS)

# The tests of the wheel that users install.
.PHONY: test-wheel
test-wheel: dist/.built $(VENV)/.installed
	KOPF_WHEEL=$$(ls $(abspath dist)/kopf_rs-*.whl) $(PYTEST) tests/installed $(PYTEST_ARGS)

# The same wheel under a newer Python, if one is installed, and with uvloop, which `kopf run` uses then.
NEWEST ?= .venvs/newest
NEWEST_PYTHON ?= $(shell scripts/newest_python.sh $(PYTHON))
NEWEST_TESTS ?= tests/units tests/behaviours tests/examples

.PHONY: test-newest newest-environment
test-newest: newest-environment $(WHEELS)/.built
	@if [ -x $(NEWEST)/bin/python ]; then \
	    $(NEWEST)/bin/python --version; \
	    $(NEWEST)/bin/python -m pip install --quiet --force-reinstall --no-deps $(WHEELS)/kopf_rs-*.whl; \
	    $(call PYTEST_IN,$@,$(NEWEST)/bin/python) $(PARALLEL) --embedded $(NEWEST_TESTS) $(PYTEST_ARGS); \
	else \
	    echo 'SKIPPED make test-newest: no Python newer than $(PYTHON) is installed; NEWEST_PYTHON=... names one.'; \
	fi

newest-environment:
	@python='$(NEWEST_PYTHON)'; \
	if [ -z "$$python" ]; then rm -rf $(NEWEST); exit; fi; \
	[ "$$($(NEWEST)/bin/python --version 2>&1)" = "$$($$python --version)" ] || $$python -m venv --clear $(NEWEST); \
	$(NEWEST)/bin/python -m pip install --quiet --no-compile -r requirements/newest.txt

# The kubectl of the tests: an installed one, or one built with Go once and kept under target/. Without either, the tests are
# skipped with a reason.
.PHONY: kubectl
kubectl:
	@scripts/kubectl.sh || true

# The helm of a test, built with Go and kept under target/: it takes minutes for the first time. Without it, the test is skipped.
.PHONY: helm
helm:
	@scripts/helm.sh build

# The caches at length: 100,000 objects, and readers under load for 30 seconds.
.PHONY: caches
caches: $(VENV)/.installed
	CACHE_PODS=$(or $(CACHE_PODS),100000) CACHE_SECONDS=$(or $(CACHE_SECONDS),30) $(PYTEST) tests/behaviours/caches/test_memory.py $(PYTEST_ARGS)

# Some of these tests need promtool and Prometheus: those in PROMTOOL and PROMETHEUS, or on the PATH. Elsewhere, they are skipped without
# them. Prometheus scrapes an operator under a mixed load for some minutes.
.PHONY: monitoring
monitoring: $(VENV)/.installed
	@command -v "$${PROMTOOL:-promtool}" >/dev/null || { echo 'There is no promtool: set PROMTOOL.' >&2; exit 3; }
	@command -v "$${PROMETHEUS:-prometheus}" >/dev/null || { echo 'There is no prometheus: set PROMETHEUS.' >&2; exit 3; }
	MONITORING_SECONDS=$(or $(MONITORING_SECONDS),180) $(PYTEST) tests/units/test_monitoring.py tests/behaviours/metrics $(PYTEST_ARGS)

test-python: $(VENV)/.installed $(REFERENCE)/.installed dist/.metadata kubectl
	KOPF_REFERENCE_PYTHON=$(abspath $(REFERENCE)/bin/python) $(PYTEST) $(PARALLEL) \
	    $(foreach path,$(BINDINGS),--ignore=$(path)) $(PYTEST_ARGS)

# All orders of the events of one object, and random ones of an election; test-rust includes a small part.
.PHONY: explore
explore:
	cargo test --release -p kopf-core --test explorer --test slot_explorer --test lease_explorer -- \
	    --ignored --exact at_length --nocapture

# All crashes; tests/faults/test_crashes.py runs a sample of them.
.PHONY: crash
crash: $(VENV)/.installed
	$(BIN)/python -m scripts.crash

# Three replicas under random kills, stops and partitions; tests/faults/test_replicas.py runs a few rounds.
.PHONY: replicas
replicas: $(VENV)/.installed
	REPLICA_ROUNDS=$(or $(REPLICA_ROUNDS),200) $(PYTEST) tests/faults/test_replicas.py $(PYTEST_ARGS)

# Leader election between processes, with a candidate of client-go if that can be built: minutes.
.PHONY: leadership
leadership: $(VENV)/.installed kubectl
	@scripts/elector.sh build
	LEADERSHIP_ROUNDS=20 LEADERSHIP_OBJECTS=10000 LEADERSHIP_HANDOVER=1 $(PYTEST) tests/faults/test_leadership.py -s $(PYTEST_ARGS)

.PHONY: schedules
schedules: $(VENV)/.installed
	for seed in 1 2 3 4 5; do \
	    SCHEDULE_PRIMARIES=5000 SCHEDULE_SEED=$$seed $(PYTEST) tests/behaviours/reconcile/test_schedules.py $(PYTEST_ARGS) || exit 1; \
	done

.PHONY: soak load
soak: $(BENCHED)/ours/.installed
	$(BENCHED)/ours/bin/python -m scripts.soak --minutes $(or $(SOAK_MINUTES),60) --log target/soak.log

load: $(BENCHED)/ours/.installed
	$(BENCHED)/ours/bin/python -m scripts.load $(LOAD_ARGS)

# The fault tests on a real control plane, and under Kopf 1.45.
.PHONY: faults faults-reference
faults: $(VENV)/.installed
	KOPF_FAULTS_OBJECTS=2000 $(PYTEST) tests/faults -s --kopf-cluster=assets $(PYTEST_ARGS)

faults-reference: $(VENV)/.installed $(REFERENCE)/.installed
	KOPF_FAULTS_OBJECTS=2000 $(PYTEST) tests/faults -s --kopf-python $(abspath $(REFERENCE)/bin/python) $(PYTEST_ARGS)

# Sends the recorded requests of the generated conformance corpora to the embedded API server; takes less than three minutes. The
# corpora are built-in kinds with variants, CRDs in the style of real ones, admission policies, and writes by several managers. Fails
# if fewer than 98 percent of the answers, or fewer than 90 percent in one family, are those of kube-apiserver.
.PHONY: conformance
conformance: $(VENV)/.tools
	cargo build --quiet -p kopf-apiserver --bin kopf-apiserver
	$(VENV)/bin/python -m tests.conformance.generative compare target/debug/kopf-apiserver --required 98 --required-family 90
	for corpus in style policies managers; do \
	    $(VENV)/bin/python -m tests.conformance.generative --corpus $$corpus compare target/debug/kopf-apiserver \
	        --required 98 --required-family 90 || exit 1; \
	done

# Coverage-guided fuzzing with the properties of fuzz/; the tests provide the seeds. Failing inputs are kept in fuzz/artifacts.
FUZZ_SECONDS ?= 120
FUZZ_TARGETS ?= objects differences patches codecs selectors reviews kubeconfigs

.PHONY: fuzz audit
fuzz:
	KOPF_FUZZ_CORPUS=$(abspath fuzz/corpus) cargo test --quiet -p kopf-core --lib fuzzing
	for target in $(FUZZ_TARGETS); do \
	    cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -timeout=10; \
	done

AUDIT ?= .venvs/audit

$(AUDIT)/bin/pip-audit:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --no-compile -r requirements/audit.txt

audit: $(AUDIT)/bin/pip-audit
	cargo deny --all-features check
	$(AUDIT)/bin/pip-audit --strict -r requirements/dev.txt -r requirements/docs.txt

# The examples on the embedded API server.
test-embedded: $(VENV)/.installed
	$(PYTEST) $(PARALLEL) tests/examples --embedded

# The tests on the real control plane under Kopf 1.45: they verify our expectations of Kopf.
.PHONY: test-reference
test-reference: $(VENV)/.tools $(REFERENCE)/.installed
	KOPF_REFERENCE_PYTHON=$(abspath $(REFERENCE)/bin/python) $(PYTEST) tests/real tests/examples \
	    --kopf-python $(abspath $(REFERENCE)/bin/python) $(PYTEST_ARGS)

# Complete operators with client libraries, under kopf-rs and under Kopf 1.45; the libraries alone, on the embedded API server and on a
# real one.
OPERATORS ?= .venvs/operators

$(OPERATORS)/.installed: requirements/operators.txt
	$(PYTHON) -m venv $(OPERATORS)
	$(OPERATORS)/bin/python -m pip install --quiet --no-compile -r requirements/operators.txt
	@touch $@

.PHONY: operators
operators: $(VENV)/.installed $(REFERENCE)/.installed $(OPERATORS)/.installed
	export KOPF_OPERATORS_SITE=$$($(OPERATORS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	export KOPF_REFERENCE_PYTHON=$(abspath $(REFERENCE)/bin/python); \
	$(PYTEST) $(if $(AGAIN),,-n 2 --dist worksteal) tests/operators tests/real/test_client_flows.py::test_the_libraries \
	    $(PYTEST_ARGS)

.PHONY: lint lint-rust lint-rest lint-python lint-typing lint-tests
lint: lint-rust lint-rest

lint-rest: lint-python lint-typing lint-tests docs

# All tests can be imported. Then the processes of `make test` need not compile them at the same time.
lint-tests: $(VENV)/.installed
	$(BIN)/python -m pytest --collect-only -qq -p no:cacheprovider | tail -n 30

# `--examples` (there are none) selects the features of the tests, so that rustdoc reuses clippy's metadata.
lint-rust: | $(BIN)/python
	cargo fmt --all --check
	cargo fmt --check --manifest-path $(PEERS)/kube-rs/Cargo.toml
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	$(BIN)/python scripts/rust_imports.py
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --quiet --lib --examples

lint-python: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy python/kopf
	$(BIN)/mypy --explicit-package-bases tests/differential/run.py tests/differential/harness
	$(BIN)/mypy --strict --explicit-package-bases benches/run.py benches/harness
	cd python && ../$(BIN)/lint-imports --config ../.importlinter --no-cache
	$(BIN)/python scripts/words.py
	$(BIN)/python scripts/lengths.py

# Typical operators under pyright; the tests include mypy.
TYPING ?= .venvs/typing

$(TYPING)/.installed: requirements/typing.txt
	$(PYTHON) -m venv $(TYPING)
	$(TYPING)/bin/python -m pip install --quiet --no-compile -r requirements/typing.txt
	@touch $@

# Workflows run on GitHub only; this finds expressions, runners and arguments of actions that do not exist. CI on GitHub runs it first.
ACTIONLINT ?= v1.7.12
.PHONY: lint-workflows
lint-workflows:
	go run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT)

lint-typing: $(VENV)/.installed $(TYPING)/.installed
	PYRIGHT=$(abspath $(TYPING)/bin/basedpyright) $(PYTEST) tests/contract/test_typing.py -k pyright

# The HTML documentation, in site/; a broken link or reference is an error. API pages are made of the installed package.
DOCS ?= .venvs/docs

$(DOCS)/.installed: requirements/docs.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --no-compile -r requirements/docs.txt
	@touch $@

.PHONY: docs
docs: $(DOCS)/.installed $(WHEELS)/.built
	$(DOCS)/bin/python -m pip install --quiet $(WHEELS)/kopf_rs-*.whl
	$(DOCS)/bin/python -m pip install --quiet --force-reinstall --no-deps $(WHEELS)/kopf_rs-*.whl
	rm -rf site
	$(DOCS)/bin/sphinx-build -q -W --keep-going -c docs -d site/.doctrees . site

# Each Kopf has a separate environment without client libraries, which its login would import.
BENCHED ?= .venvs/benched

$(BENCHED)/ours/.installed: dist/.built
	test -x $(BENCHED)/ours/bin/python || $(PYTHON) -m venv $(BENCHED)/ours
	$(BENCHED)/ours/bin/python -m pip install --quiet --force-reinstall dist/kopf_rs-*.whl
	@touch $@

$(BENCHED)/reference/.installed: requirements/reference.txt
	$(PYTHON) -m venv $(BENCHED)/reference
	$(BENCHED)/reference/bin/python -m pip install --quiet --no-compile -r requirements/reference.txt
	@touch $@

# Under the newest Python, too, if there is one.
$(BENCHED)/newest/.installed: dist/.built
	rm -rf $(BENCHED)/newest && mkdir -p $(BENCHED)/newest
	@if [ -n "$(NEWEST_PYTHON)" ]; then \
	    $(NEWEST_PYTHON) -m venv $(BENCHED)/newest && \
	    $(BENCHED)/newest/bin/python -m pip install --quiet dist/kopf_rs-*.whl; fi
	@touch $@

.PHONY: bench
bench: $(BENCHED)/ours/.installed $(BENCHED)/newest/.installed $(BENCHED)/reference/.installed
	newest=$(abspath $(BENCHED)/newest/bin/python); \
	$(BIN)/python -m benches.run --ours $(abspath $(BENCHED)/ours/bin/python) \
	    $$([ ! -x $$newest ] || echo --newest $$newest) \
	    --reference $(abspath $(BENCHED)/reference/bin/python) $(BENCH_ARGS)

# The programs with kube-rs and with controller-runtime that the benchmarks are compared with; the second one needs Go.
PEERS := benches/peers

.PHONY: peers bench-peers
peers:
	cargo build --release --locked --quiet --manifest-path $(PEERS)/kube-rs/Cargo.toml --target-dir $(PEERS)/kube-rs/target
	@if command -v go >/dev/null; then cd $(PEERS)/controller-runtime && go build -o peer .; \
	else echo 'SKIPPED controller-runtime: Go is not installed.'; fi

bench-peers: peers
	peer=$(PEERS)/controller-runtime/peer; \
	$(MAKE) bench BENCH_ARGS="--native kube-rs=$(PEERS)/kube-rs/target/release/kube-rs-peer \
	    $$([ ! -x $$peer ] || echo --native controller-runtime=$$peer) $(BENCH_ARGS)"

# With the peers: make figures BENCH=bench-peers VERSION=...
BENCH ?= bench

.PHONY: figures
figures:
	@test -n "$(VERSION)" || { echo "Name what is measured: make figures VERSION='version 0.1.0'"; exit 1; }
	$(MAKE) $(BENCH) BENCH_ARGS='--json target/bench.json --markdown target/bench.md $(BENCH_ARGS)'
	$(BIN)/python -m scripts.figures --results target/bench.json --date "$$(LC_ALL=C date '+%-d %B %Y')" --version '$(VERSION)'

# The same operators with Kopf 1.45 and with kopf-rs on a real control plane; the part is a sixth, a different one each day. Without a
# control plane, they are skipped; with CI=true, they fail.
DIFFERENTIAL = $(BIN)/python -m tests.differential.run --reference $(abspath $(REFERENCE)/bin/python) \
    --candidate $(abspath $(BIN)/python)
PART ?= today

.PHONY: differential differential-part
differential: $(VENV)/.installed $(REFERENCE)/.installed
	$(DIFFERENTIAL) $(SUITE_ARGS)

differential-part: $(VENV)/.installed $(REFERENCE)/.installed
	$(DIFFERENTIAL) --part $(PART) --quiet-warnings

# Everything that does not need the wheel; .ci/run prepares it while the wheel is compiled.
.PHONY: environments build-tests
environments: $(REFERENCE)/.installed $(OPERATORS)/.installed $(TYPING)/.installed $(DOCS)/.installed newest-environment

build-tests: | $(BIN)/python
	cargo test $(CARGO_TESTS) --quiet --no-run

.PHONY: clean
clean:
	rm -rf $(VENV) .venvs dist site target $(LICENCES) packaging/kopf/build packaging/kopf/*.egg-info
