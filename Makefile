# `make demo` and `make test` need Python 3.11+, make and a package registry; everything else is installed here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test browser evidence simulations soak lint bench coverage compare reproduce reproduce-full site release matrix clean

demo: $(STAMP)
	$(BIN)/fedaudit demo

# Three workers for two cores: tests with real processes of Flower and Ray mostly wait.
test: $(STAMP) browser lint
	$(BIN)/python -m pytest -n 3 --dist worksteal

# Chromium by apt-get (as root), axe-core by npm, where they are missing and can be had: see tests/browser/setup.py.
browser: $(STAMP)
	$(BIN)/python -m tests.browser.setup

# What takes too long for every change: all commands and figures of the README and of the longer newcomers' pages as
# printed, restarted Flower nodes, a lost Ray node, a whole advice, DP mechanisms that are wrong on purpose over ten seeds.
evidence: $(STAMP) browser
	$(BIN)/python -m pytest -n 3 --dist loadfile -m evidence -o faulthandler_timeout=3600

# What `make test` leaves out while src/fedaudit/stats and its tests are as they were when this last passed.
simulations: $(STAMP)
	$(BIN)/python -m tests.stats.simulated

# Long campaigns, about two hours on one core, and all tests; docs/trust.md then says what they found. The fuzz is left
# out where atheris is not installed (`pip install atheris`).
soak: $(STAMP)
	mkdir -p build
	$(BIN)/python -m tests.fuzz.soak | tee build/soak.log
	$(BIN)/python -m pytest -n 3 --dist worksteal -m '' -o faulthandler_timeout=3600 --junitxml build/tests.xml
	$(BIN)/python -m docs.make_trust build/soak.log build/tests.xml
	$(BIN)/python -m docs.make_scale run day stream
	$(BIN)/python -m docs.make_scale page

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m benchmarks all

# Simulates about a hundred kinds of audits and writes docs/coverage.md: some twenty minutes on one core.
coverage: $(STAMP)
	$(BIN)/python -m docs.make_coverage

# The main claims of five papers, each with a verdict: docs/reproduction.md. Started again, it goes on. DATA is the folder
# of the data sets that no package brings.
DATA ?= ../shared/data
reproduce: $(STAMP)
	$(BIN)/python -m docs.make_reproduction --data $(DATA)

# The same with ten seeds: several hours.
reproduce-full: $(STAMP)
	$(BIN)/python -m docs.make_reproduction --data $(DATA) --seeds 10

# docs/comparison.md: other libraries on the same work. They have an environment of their own.
PEERS := build/peers
compare:
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)" -c constraints.txt
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[demo,dp,flower,peers]' -c constraints.txt
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check 'jax-privacy>=2,<3' -c constraints.txt || true
	$(PEERS)/bin/python -m docs.make_comparison

# docs/ as a site, in build/site: open build/site/index.html. A broken link or anchor stops it.
site: $(STAMP)
	$(BIN)/zensical build --strict --clean

# Wheel and sdist, checked; the wheel installed into two empty environments and tried from another folder: alone, where it
# reads and judges, and with what the demo needs; and a list of all that the larger one holds (CycloneDX). What is to be
# published is then in build/dist.
EMPTY := build/empty
BASE := build/base
release: $(STAMP)
	rm -rf build/dist $(EMPTY) $(BASE)
	$(BIN)/python -m build --outdir build/dist .
	$(BIN)/twine check --strict build/dist/*
	$(PYTHON) -m venv $(BASE)
	$(BASE)/bin/python -m pip install --quiet --disable-pip-version-check build/dist/*.whl -c constraints.txt
	$(BASE)/bin/python -m pip check
	$(BASE)/bin/python tests/base_install.py $(BASE)/tried
	$(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)" -c constraints.txt
	$(EMPTY)/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls build/dist/*.whl)[demo]" -c constraints.txt
	$(EMPTY)/bin/python -m pip check
	cd $(EMPTY) && bin/fedaudit demo --out demo --set federation.rounds=2 --set 'audit.attacks=["loss"]'
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom
	build/sbom/bin/cyclonedx-py environment $(EMPTY)/bin/python --of JSON -o build/dist/fedaudit.cdx.json

# Other interpreters and versions, as far as they are here. CELLS="base-3.12 full-3.11-flwr-1.42" runs these alone.
matrix: $(STAMP)
	$(BIN)/python -m tests.matrix $(CELLS)

# Re-made only when what is to be installed changes. torch goes first and by its exact version, so that
# no other package's looser demand can choose a larger build.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("fedaudit needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)" -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	touch $(STAMP)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
