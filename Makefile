# Roost: `make up` for a running system, `make test` for everything that must hold. `make help` lists the rest.

DATA    ?= /var/lib/roost
PREFIX  ?= /usr/local
export PREFIX DESTDIR SYSCONFDIR
TARGET  := $(abspath $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target))

# Where the daemon of DATA listens; the default folder has its socket where a client looks for it.
ifeq ($(DATA),/var/lib/roost)
SOCKET := /run/roost/roost.sock
else
SOCKET := $(abspath $(DATA))/run/roost.sock
endif

export DATA := $(abspath $(DATA))
export ROOST_SOCKET := $(SOCKET)
export ROOST := $(TARGET)/release/roost
# A root shell is what the scripts need; anybody else is asked for a password once.
export SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E)

.DEFAULT_GOAL := help
.PHONY: help up tools down clean-all setup web build install uninstall deb book test test-beside test-gvisor test-stock torture fuzz deps bench lint fmt doc

help: ## Show this help
	@echo "Roost gives AI agents computers of their own."
	@echo
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  DATA=$(DATA) (for another daemon beside it: make up DATA=/somewhere/else ROOST_LISTEN=none)"

up: setup build ## Install what is missing, build, start the daemon, make the templates, show a demo
	@scripts/daemon tools
	@scripts/daemon start
	@scripts/templates mini base
	@$(SUDO) $(ROOST) demo
	@scripts/next-steps

down: ## Stop the daemon and every sandbox; the data stays
	@scripts/daemon down

clean-all: ## Undo everything: the running part, the data folder and target/
	@scripts/daemon clean
	@rm -rf -- $(TARGET) web/node_modules

setup: ## Install the packages that are missing (Debian and Ubuntu), check the toolchain
	@scripts/setup node npm

web: setup ## Build the page that the binary carries
	@scripts/web

build: web ## Build the release binary, with the page and the static programs for inside of sandboxes that it carries
	@cargo build --release -p roost-cli

tools: ## Bring CRIU and runsc to the daemon of DATA, to save memory and for gVisor (make up does)
	@scripts/daemon tools

install: build ## Install the binary, systemd unit, completions and manual pages (PREFIX, DESTDIR)
	@scripts/install install

uninstall: ## Remove what make install put there; the data stays
	@scripts/install uninstall

deb: build ## Build a Debian package into target/deb
	@scripts/deb $(TARGET)/deb

book: ## Build the documentation as a site into target/book
	@scripts/book $(TARGET)/book

test: ## Run every check and test; leaves nothing behind
	@scripts/test

test-beside: build ## Run every check and test while another daemon on this host makes, forks and removes sandboxes
	@ROOST_BIN=$(ROOST) scripts/beside scripts/test

test-gvisor: ## Run the end-to-end tests and E2B's suites with sandboxes on gVisor
	@ROOST_E2E_ENGINE=gvisor scripts/test

test-stock: build ## Install the package on emulated Debian machines and use every verb there (STOCK_MACHINES, STOCK_KEEP=1)
	@$(SUDO) scripts/test-stock

torture: ## Random life under fire for ten minutes (TORTURE_TIME in seconds, TORTURE_SEED to repeat one)
	@scripts/torture

fuzz: ## Damaged input for every reader of bytes, a minute each (FUZZ_TIME in seconds, FUZZ_SEED to repeat one)
	@ROOST_FUZZ_SECONDS=$(or $(FUZZ_TIME),60) $(if $(FUZZ_SEED),ROOST_FUZZ_SEED=$(FUZZ_SEED)) \
		cargo test --workspace --lib --quiet fuzz -- --nocapture

deps: ## Check what Roost is built from: licences, sources, duplicates, versions that were taken back, advisories
	@scripts/deps

bench: setup build ## Measure this host beside its peers: docs/bench, the README's table, the specification's promises
	@scripts/bench

lint: ## Check format and lints
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets -- -D warnings

fmt: ## Format the code
	@cargo fmt --all

doc: ## Build the documentation of the crates
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items
