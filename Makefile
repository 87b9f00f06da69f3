# Everything a contributor runs. `make` alone prints this list.
# Needs Python 3.11 or newer and make; all the rest is installed into .venv from uv.lock.

PYTHON ?= python3
VENV ?= .venv
BENCH_VENV ?= .venv-bench
# Folders about what is built upon the engine, or around it: they run without coverage, a third
# faster. All of the engine (model/, operations/) must be covered by the others.
UPPER_TESTS := $(addprefix tests/,bench borrowed cli dashboard docs examples forms http kill pgbouncer push \
	sql_function telemetry testing webhooks)
# What tests need and no wheel brings. `make test DEBIAN_PACKAGES=` installs nothing.
DEBIAN_PACKAGES ?= pgbouncer chromium
UV := uv>=0.13.7,<0.14

BIN := $(VENV)/bin
export UV_PROJECT_ENVIRONMENT := $(VENV)
# The interpreter of .venv, never one that uv would fetch; the machine's certificates, as pip has them.
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# The theme advertises its successor in every build.
export NO_MKDOCS_2_WARNING := 1
# Compiled modules are kept in .venv, also where the environment says not to write them: the tests
# start hundreds of interpreters, and to compile all imports takes longer than to run them.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/pycache

# --inexact keeps pip and uv, which are not in the lock.
SYNC := $(BIN)/uv sync --quiet --frozen --inexact

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run demo shop django-shop docs screenshots reference test prove soak check format bench lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(VENV)/.run ## serve the dashboard and the HTTP API on loopback, on SQLite (onefold.db)
	@$(BIN)/onefold serve $(if $(DATABASE),--database $(DATABASE)) $(if $(PORT),--port $(PORT))

demo: $(VENV)/.run ## watch duplicate requests and killed workers, with Onefold and without
	@$(BIN)/onefold demo

shop: $(VENV)/.dev ## serve the example shop: an API, a form, a webhook and a job on loopback
	@$(BIN)/python -m examples.shop $(if $(DATABASE),--database $(DATABASE))

django-shop: $(VENV)/.dev ## serve the same shop as a project of Django's
	@$(BIN)/python -m examples.django_shop $(if $(DATABASE),--database $(DATABASE))

docs: $(VENV)/.dev ## build the documentation site into site/ (SERVE=1: serve it on loopback)
	$(BIN)/mkdocs $(if $(SERVE),serve,build --strict)

screenshots: $(VENV)/.dev ## write the pictures of the dashboard into docs/images
	@mkdir -p docs/images
	$(BIN)/pytest -n 0 -p tests.conftest tools/screenshots.py

reference: $(VENV)/.dev ## write the generated parts of docs/reference: events, help of commands
	$(BIN)/python tools/reference.py

test: $(VENV)/.dev ## prove each rule once, on SQLite and PostgreSQL, with coverage
	@tools/debian-packages $(DEBIAN_PACKAGES)
	@# They wait for processes and for PostgreSQL: three at a time leave no core idle.
	$(BIN)/pytest --numprocesses=3 $(UPPER_TESTS)
	$(BIN)/pytest --numprocesses=3 --cov --cov-report= $(addprefix --ignore=,$(UPPER_TESTS))
	$(BIN)/coverage report --include='src/onefold/model/*,src/onefold/operations/*' --fail-under=100

prove: $(VENV)/.dev ## run the long proofs, all combinations, and other interpreters (ONEFOLD_PROOF_SEED=…: repeat)
	@tools/debian-packages $(DEBIAN_PACKAGES)
	ONEFOLD_PROOF=prove BIN=$(BIN) tools/prove --numprocesses=3
	$(BIN)/python tools/pythons.py

soak: $(VENV)/.dev ## run all tests, with larger numbers
	ONEFOLD_PROOF=soak $(BIN)/pytest --numprocesses=3 --timeout=3600

check: $(VENV)/.dev ## check format, style, types, imports, links of the docs and the lock
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright --pythonpath $(BIN)/python
	@# Of its long report, only a failure is worth reading. It finds the package by the first python.
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pyright --verifytypes onefold --ignoreexternal \
		> $(VENV)/verifytypes.txt || (cat $(VENV)/verifytypes.txt; exit 1)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/mkdocs build --strict
	$(BIN)/uv lock --check --quiet

format: $(VENV)/.dev ## format the code and mend what ruff can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(BENCH_VENV)/.bench ## measure Onefold beside raw SQL and its peers, over TCP (ONLY=enqueue: a part; SOCKET=unix)
	@$(BENCH_VENV)/bin/python -m bench

lock: $(VENV)/.uv ## bring uv.lock in step with pyproject.toml (UPGRADE=1: newest versions)
	$(BIN)/uv lock $(if $(UPGRADE),--upgrade)

clean: ## remove the environment, caches and builds
	rm -rf $(VENV) $(BENCH_VENV) .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist site
	find src contract tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Stamps: a file of .venv is newer than what it was made from, or it is made again.

$(VENV)/.uv: $(firstword $(MAKEFILE_LIST))
	@$(PYTHON) -c 'import sys; sys.exit("Onefold needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Name another: make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet '$(UV)'
	@touch $@

# Beside it, an environment with what the extra server needs alone: a test installs the wheel there.
$(VENV)/.dev: $(VENV)/.uv pyproject.toml uv.lock
	$(SYNC) --all-extras
	@UV_PROJECT_ENVIRONMENT=$(VENV)/server-only $(BIN)/uv sync --quiet --frozen --python $(BIN)/python \
		--no-default-groups --extra server --no-install-project
	@touch $@

$(VENV)/.run: $(VENV)/.uv pyproject.toml uv.lock
	$(SYNC) --no-default-groups --extra server
	@touch $@

# An environment of its own: the peers' dependencies must not decide what we are tested with.
$(BENCH_VENV)/.bench: $(VENV)/.uv pyproject.toml uv.lock
	UV_PROJECT_ENVIRONMENT=$(BENCH_VENV) $(BIN)/uv sync --quiet --frozen --python $(BIN)/python \
		--no-default-groups --group bench --extra postgres --extra server
	@touch $@
