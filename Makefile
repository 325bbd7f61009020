# Needs python3 >= 3.11 (another: make PYTHON=/path/to/python), gcc, g++ and make; .ci/ready says what is missing.
# Everything goes into .venv, .dana (the embedded PostgreSQL), .icarus, .stamps and build, all below this folder.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps
# compiled into the packages by the editable install, so a change of one installs again
NATIVE := $(shell find dana hwgen -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.inc') \
	$(shell find hwgen/spec dana/simulator -name '*.py')

.DELETE_ON_ERROR:
.PHONY: help demo wheel site test test-all pytest pytest-all bench bench-quick mutants headers lint clean all install installcheck pgxn

help:
	@echo 'make demo   train a table in a real PostgreSQL, on the simulator and on the generated hardware'
	@echo 'make test   lint, types, import contracts, tests; make test-all: every version and example, before a release'
	@echo 'make bench  measure, as ratios to references of the same run; make bench-quick: in minutes'
	@echo 'make mutants PATHS=FILE TESTS=TESTS  change one thing of a Python file at a time: do its tests notice?'
	@echo 'make site   build/site/html: the documents as a site, with the notebooks executed'
	@echo 'make wheel  dist/*.whl, which needs no compiler where it is installed, and its source archive; ARCH=aarch64: for that'
	@echo 'make lint   lint, types and import contracts alone'
	@echo 'make clean  stop the embedded server and remove what the others made'

demo: $(STAMPS)/demo
	$(BIN)/dana demo

# The extension is compiled for other versions while pip unpacks packages, and mypy runs during the tests: each alone
# would leave a core idle, and so would as many test processes as there are cores, since some wait for a server.
test-all: $(STAMPS)/chromium $(STAMPS)/soc $(STAMPS)/ray
test test-all:
	$(MAKE) --jobs 2 --output-sync=target $(STAMPS)/icarus $(STAMPS)/test headers $(if $(filter test,$@),MAJORS=14)
	$(MAKE) --jobs 2 lint $(@:test%=pytest%)

# Hundreds of processes import what the first of them compiles, whatever the caller's environment says.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --processes 3

# the newest PostgreSQL, a quarter of the random examples, without what is exhaustive
pytest: $(STAMPS)/test
	DANA_TEST_SCALE=$${DANA_TEST_SCALE:-0.25} $(PYTEST) -m 'not exhaustive'

# every version that is embedded, all examples, and examples of hypothesis that no run has seen
pytest-all: $(STAMPS)/test
	seed=$${DANA_TEST_SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; echo "DANA_TEST_SEED=$$seed"; \
	DANA_TEST_SEED=$$seed $(PYTEST) --hypothesis-seed $$seed --postgresql 16,18

# warnings are errors, as where the tests compile it for their servers; make test compiles it for the oldest alone
MAJORS := 14 15 17
headers: $(STAMPS)/venv
	$(MAKE) -C pg_extension check-headers MAJORS='$(MAJORS)' PYTHON=$(CURDIR)/$(BIN)/python

bench: $(STAMPS)/test
	$(BIN)/python -m benchmarks

bench-quick: $(STAMPS)/test
	$(BIN)/dana bench peers --scale 0.1 --html bench.html

mutants: $(STAMPS)/test
	$(BIN)/pip install --quiet 'mutmut>=3.8,<4'
	$(BIN)/python -m benchmarks.faults.mutants $(PATHS) --tests $(TESTS)

site: $(STAMPS)/test
	$(BIN)/python docs/site.py

ARCH := x86_64
wheel: $(STAMPS)/demo
	.ci/wheel $(CURDIR)/$(BIN)/python dist $(ARCH)

lint: $(STAMPS)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# the extension alone, as PGXN's client calls them: make all install PG_CONFIG=/path/to/pg_config; pgxn: its archive
all install installcheck pgxn:
	$(MAKE) -C pg_extension $@

# root's server may live in /var/cache/dana; a folder that DANA_HOME names stays
ROOT := env -u DANA_HOME $(BIN)/python -c \
	'from dana.server import account, places; print(places.default_root(account.server_account()))'

clean:
	if [ -x $(BIN)/dana ]; then $(BIN)/dana stop --major 16 && $(BIN)/dana stop --major 18 && rm -rf "$$($(ROOT))"; fi
	rm -rf $(VENV) $(STAMPS) .dana .icarus build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find dana dsl hwgen tests benchmarks \( -name '*.so' -o -name __pycache__ \) -exec rm -rf {} +

# Icarus Verilog is on no package index of Python's: where the machine has none, Debian's package is unpacked into .icarus
$(STAMPS)/icarus:
	@mkdir -p $(STAMPS)
	command -v iverilog >/dev/null || .ci/icarus .icarus
	@touch $@

# a SoC around an exported package, its processor, and a compiler for that
$(STAMPS)/soc: $(STAMPS)/test
	$(BIN)/pip install --quiet 'litex>=2024.12' 'litedram>=2024.12' 'pythondata-cpu-vexriscv>=1.0.1.post407' 'ziglang>=0.15,<0.18'
	@touch $@

# the release of Ray that users get
CLUSTER := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["cluster"])
$(STAMPS)/ray: $(STAMPS)/test
	$(BIN)/pip install --quiet $$($(BIN)/python -c '$(CLUSTER)')
	@touch $@

# the browser that tests of dana ui drive; with what it depends on it is too much to unpack here
$(STAMPS)/chromium:
	@mkdir -p $(STAMPS)
	command -v chromium >/dev/null || { apt-get update && apt-get install --yes --no-install-recommends chromium; } || \
	  { echo 'dana: make test-all drives the browser chromium, which your package manager has' >&2; exit 1; }
	@touch $@

# What builds ours is installed, too, and not fetched for each build: a change of a native source is compiled without
# the network.
BUILD_REQUIRES := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])
CANNOT = { echo 'dana: pip could not install the packages, see above; the first time it needs a package index' >&2; exit 1; }

$(STAMPS)/venv:
	@.ci/ready $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --no-compile $$($(BIN)/python -c '$(BUILD_REQUIRES)') || $(CANNOT)
	@mkdir -p $(STAMPS)
	@touch $@

# Ours is compiled while pip unpacks the packages that it needs, which it does with one core.
$(STAMPS)/ours: $(STAMPS)/venv pyproject.toml setup.py $(NATIVE)
	@$(BIN)/pip install --no-compile --no-build-isolation --no-deps --editable . || $(CANNOT)
	@touch $@

# The packages of the extras $(1), with pip's own progress
NEEDED := import sys, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*project["dependencies"], *(line for extra in sys.argv[1:] for line in project["optional-dependencies"][extra]), sep="\n")
define install
	@echo 'installing Python packages into $(VENV) (the first time $(2), a minute or more)'
	@$(BIN)/python -c '$(NEEDED)' $(1) >$@.txt && $(BIN)/pip install --no-compile --requirement $@.txt || $(CANNOT)
	@touch $@
endef

$(STAMPS)/demo-packages: $(STAMPS)/venv pyproject.toml
	$(call install,embedded rtl,120 MB)

$(STAMPS)/test-packages: $(STAMPS)/venv pyproject.toml
	$(call install,embedded rtl test,600 MB)
	@touch $(STAMPS)/demo-packages

# demo: what a user needs; test: that and the developer's tools
$(STAMPS)/demo $(STAMPS)/test: $(STAMPS)/%: $(STAMPS)/%-packages $(STAMPS)/ours
	@touch $@
