PYTHON ?= python3
VENV := .venv
CORE := .venv-core
BIN := $(VENV)/bin
INSTALL := -m pip install --quiet --disable-pip-version-check -c constraints.txt
EXTRAS := serve,postgres,figures,heif,dicom,privacy,datasets,export,ray,umap
CORE_EXTRAS := serve,export
FAST := not slow and not gpu

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-core test-torch test-slow test-lowest test-wheel check site bench release sbom kept hashes clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.ready  ## Make .venv with everything in it

$(VENV)/.ready: WANTED := --group dev -e '.[torch,$(EXTRAS)]'
$(CORE)/.ready: WANTED := -e '.[$(CORE_EXTRAS)]'
$(VENV)/.ready $(CORE)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "ucds needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(INSTALL) 'pip>=25.1'  # the first that knows groups of dependencies
	$(@D)/bin/python $(INSTALL) $(WANTED)
	@touch $@

demo: $(CORE)/.ready  ## See the whole method on embedded data, in minutes on a laptop; without PyTorch
	$(CORE)/bin/ucds demo --out demo-out

# Else each worker of each run would rewrite the assertions of all tests anew.
test-core test-torch test-slow test-lowest: export PYTHONDONTWRITEBYTECODE =

test: test-core test-torch  ## Run the fast tests, each once: most where PyTorch is missing, the others where it is

test-core: $(CORE)/.tests  ## Run the fast tests that need no PyTorch, where it is not installed
	$(CORE)/bin/python -m pytest -m '$(FAST) and not torch' -n 3 --dist loadfile

test-torch: setup  ## Run the fast tests that need PyTorch
	$(BIN)/python -m pytest -m '$(FAST) and torch' -n 3 --dist loadfile

$(CORE)/.tests: $(CORE)/.ready
	$(CORE)/bin/python $(INSTALL) --group test -e '.[$(EXTRAS)]'
	@touch $@

test-slow: setup  ## Run the slow tests
	$(BIN)/python -m pytest -m 'slow and not gpu' -n 2 --dist loadfile --durations 20 -rs

test-lowest:  ## Run the fast tests with the lowest versions that pyproject.toml allows, in .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest --resolution lowest-direct -e '.[torch,$(EXTRAS)]'
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest --group test
	.venv-lowest/bin/python -m pytest -m '$(FAST)' -n 3 --dist loadfile

test-wheel: setup  ## Build the wheel, and test it in an environment without any extra
	$(BIN)/python -m pytest -m slow tests/packaging

check: setup  ## Lint, types (of scripts too, where npm is), import contracts, docstrings, words, links of the site
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict --config-file= --follow-imports=silent tests/typing
	$(BIN)/python tools/check_windows.py
	$(BIN)/lint-imports
	$(BIN)/python tools/check_docstrings.py src
	$(BIN)/python tools/check_words.py README.md CONTRIBUTING.md docs src
	$(BIN)/python tools/check_scripts.py
	$(BIN)/python tools/build_site.py

site: setup  ## Build the site in build/site, and refuse links that lead nowhere
	$(BIN)/python tools/build_site.py

bench: setup  ## Measure; each script rewrites its record beside it
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/hostile.py

release: setup test-wheel  ## Make wheel, source archive, SBOM and digests in dist/, and try them; upload nothing
	$(BIN)/python $(INSTALL) --group release
	$(BIN)/python tools/release.py

sbom: setup  ## List what is installed as build/sbom.json (CycloneDX)
	@mkdir -p build
	$(BIN)/cyclonedx-py environment $(VENV) --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json

kept: setup  ## Fetch the libraries of the page anew, after kept.json changed
	$(BIN)/python tools/fetch_kept.py

hashes: setup  ## Write hashes.txt anew, after constraints.txt changed
	$(BIN)/python tools/write_hashes.py

clean:  ## Remove the environment and caches
	rm -rf $(VENV) $(CORE) .venv-lowest build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
