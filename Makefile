# Headrace: every command a person or CI types. `make help` lists them.
# Each target makes its own virtual environment from the locked, hashed requirements.

SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help
help: ## list the commands
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  make %-14s %s\n", $$1, $$2} /^## /{print substr($$0, 4)}' $(MAKEFILE_LIST)

## Set-up
.PHONY: dev
dev: $(VENV)/.dev ## the full development environment in .venv

.PHONY: lock
lock: ## write requirements/*.txt anew: versions and hashes, no addresses
	hack/dev/lock.sh

$(VENV)/.demo: requirements/all.txt pyproject.toml hack/dev/venv.sh
	hack/dev/venv.sh $(VENV) requirements/all.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml hack/dev/venv.sh
	hack/dev/venv.sh $(VENV) requirements/dev.txt
	@touch $@ $(VENV)/.demo
