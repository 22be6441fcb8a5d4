# Each verb is one script and works on a fresh clone by itself. `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help demo up test test-rest check fuzz sim mutants rehearsals pages chaos upgrade bench compat extras docs release clean
.NOTPARALLEL:

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: ## 336,776 real records through three brokers, a SIGKILL of a leader, and Spark; SPARK=0 without
	@scripts/demo

up: ## the demo's three brokers, kept serving until Ctrl-C; PORT=… is the first one's port
	@scripts/up

test: ## the tests of each day: each part on its real path, some ten minutes
	@scripts/test

test-rest: ## what `make test` leaves out: slow tests, nearly all mutants, more examples
	@scripts/test-rest

check: ## ruff, mypy --strict, the import rule, the tidy rules
	@scripts/check

fuzz: ## hostile frames at a node in memory, guided by coverage; Ctrl-C or SECONDS=… ends it
	@scripts/fuzz

sim: ## simulated schedules of faults, on all cores; SECONDS=… says how long
	@scripts/sim

mutants: ## every deliberately broken rule must be caught
	@scripts/mutants

rehearsals: ## every rehearsal again on real processes, event by event; NAME=… is one
	@scripts/rehearsals

pages: ## the commands of each page of README and docs, typed in their order; NAME=quick-start is one
	@scripts/pages

chaos: ## three real brokers killed, paused, cut off; every history judged; SECONDS=1800 SEED=… NETNS=1
	@scripts/chaos

upgrade: ## a rolling upgrade from OLD=COMMIT of three hosts that are apart, under clients; as root
	@scripts/upgrade

bench: ## beside Apache Kafka, alternating, same client (Java and Maven)
	@scripts/bench

compat: ## Apache Kafka and a node side by side, tool by tool (Java and Maven); ROWS=…
	@scripts/compat

extras: ## each extra alone in a new environment, with the commands of its page
	@scripts/extras

docs: ## build the documentation into site/
	@scripts/docs

release: ## sdist, wheel, checks, a new environment of each Python; DRY=1 tries it at any commit
	@scripts/release

clean: ## remove everything that the other verbs made
	@scripts/clean
