PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
EXTRAS := serve,postgres,figures,heif,dicom,privacy,datasets,export,ray,umap

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-lowest test-wheel check site bench release sbom hashes clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## Make .venv with everything in it

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "ucds needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 setup" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) 'pip>=25.1'  # the first that knows groups of dependencies
	$(PIP) -c constraints.txt --group dev -e '.[$(EXTRAS)]'
	@touch $(STAMP)

demo: setup  ## See the whole method on embedded data, in minutes on a laptop
	$(BIN)/ucds demo --out demo-out

test: setup  ## Run the fast tests
	$(BIN)/python -m pytest -m 'not slow and not gpu' -n 3 --dist loadfile

test-slow: setup  ## Run the slow tests
	$(BIN)/python -m pytest -m 'slow and not gpu' -n 2 --dist loadfile --durations 20 -rs

test-lowest:  ## Run the fast tests with the lowest versions that pyproject.toml allows, in .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet uv
	.venv-lowest/bin/uv pip install --quiet --resolution lowest-direct -e '.[$(EXTRAS)]'
	.venv-lowest/bin/uv pip install --quiet --group test
	.venv-lowest/bin/python -m pytest -m 'not slow and not gpu' -n 3 --dist loadfile

test-wheel: setup  ## Build the wheel, and test it in an environment without any extra
	$(BIN)/python -m pytest -m slow tests/packaging

check: setup  ## Lint, types, import contracts, docstrings, links of the site
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_windows.py
	$(BIN)/lint-imports
	$(BIN)/python tools/check_docstrings.py src
	$(BIN)/python tools/build_site.py

site: setup  ## Build the site in build/site, and refuse links that lead nowhere
	$(BIN)/python tools/build_site.py

bench: setup  ## Measure; each script rewrites its record beside it
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/hostile.py

release: setup test-wheel  ## Make wheel, source archive, SBOM and digests in dist/, and try them; upload nothing
	$(PIP) -c constraints.txt --group release
	$(BIN)/python tools/release.py

sbom: setup  ## List what is installed as build/sbom.json (CycloneDX)
	@mkdir -p build
	$(BIN)/cyclonedx-py environment $(VENV) --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json

hashes: setup  ## Write hashes.txt anew, after constraints.txt changed
	$(BIN)/python tools/write_hashes.py

clean:  ## Remove the environment and caches
	rm -rf .venv .venv-lowest build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
