# Every target sets up what it needs in .venv by itself; `make run` and `make test` are the two to know, `make help` lists all.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
SPARK := $(VENV)/.spark
DOCS := $(VENV)/.docs
MAVEN_PEERS := java-client-4 java-client-3 java-client-2 java-client-0.10 kafka-4 kafka-3.9 platform-4
# PySpark's wheel has ZooKeeper in it; without PySpark, take the jars that Maven brings.
ZOOKEEPER_JARS = { [ -n "$$ONCELOG_ZOOKEEPER_JARS" ] || $(BIN)/python -c 'import pyspark' 2>/dev/null || \
  { { [ -e .peers/kafka-3.9/.installed ] || echo "Fetching ZooKeeper with Maven into .peers, once."; } && $(MAKE) -s .peers/kafka-3.9/.installed && export ONCELOG_ZOOKEEPER_JARS=$(CURDIR)/.peers/kafka-3.9/lib; }; }
DATA_DIR ?= oncelog-data
PORT ?= 9092
SPARK_KILLS := sink_processes replaced_targets sink_kills sink_speculation checkpoints rewound_checkpoints \
  transaction_timeouts changing_topics coordinator_failover
KILLS ?= 200
SEED ?= 1
SIMULATED = $(SEEDS:%=--seeds %) $(BASE:%=--base %) $(KINDS:%=--kinds %)
# Tests of processes wait half of their time, so there are two processes more than processors.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
# A file is run by one process, in the order of its tests. The levels that wait come first, so that none is left to the end.
PARALLEL_PYTEST = $(BIN)/python -m pytest -q --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
INSTALLING = echo "Installing $(1) into $(VENV), once; this takes about $(2) and prints nothing meanwhile."
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Tests start hundreds of processes, and each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
# What an extra needs, without Oncelog itself: to install that anew takes it from programs that run from $(VENV).
INSTALL_EXTRA = $(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(1)"], sep="\n")' \
  > $(VENV)/$(1).txt && $(PIP_INSTALL) --requirement $(VENV)/$(1).txt

.PHONY: help run cluster cluster-test compose-test demo test test-deep simulate simulate-determinism check house client-chaos interop interop-cluster interop-smoke interop-cluster-smoke late-frames security hostile faults faults-secured faults-smoke rolling-upgrade rolling-security bench bench-broker bench-cluster bench-flush bench-scale bench-clients bench-failover bench-reload bench-before model model-deep mutations spark-test spark-comparison spark-kills spark-smoke bench-spark demo-spark spark peers docs docs-pages format clean bench-security

help:  ## These texts
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "%-24s%s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(RUNTIME)  ## One broker: make run [PORT=9092] [DATA_DIR=oncelog-data]
	$(BIN)/oncelog serve --port $(PORT) --data-dir $(DATA_DIR)

cluster: $(RUNTIME)  ## Three brokers and a ZooKeeper, data in ./oncelog-cluster (needs Java): make cluster [PORT=9092, or as before]
	@$(ZOOKEEPER_JARS) && exec $(BIN)/oncelog cluster --brokers 3 $(if $(filter-out file,$(origin PORT)),--port $(PORT))

cluster-test: $(DEV) .peers/kafka-3.9/.installed  ## What needs a real ZooKeeper
	$(BIN)/python -m pytest -q tests/cluster

compose-test: $(DEV)  ## The image, docker-compose.yml and docker-compose.secure.yml, for real (needs a Docker engine)
	$(BIN)/python -m tests.compose

demo: $(DEV)  ## Purchases to invoices and shipments, exactly once, through kill -9
	$(BIN)/python -m tests.demo

test: $(DEV)  ## Unit, scenario, conformance, simulation, chaos and integration tests, side by side: make test [WORKERS=4]
	@export ONCELOG_MIXTURE_BASE=$${ONCELOG_MIXTURE_BASE:-$$(date +%s)}; echo "Fresh histories from seed $$ONCELOG_MIXTURE_BASE on"; \
	  set -x; $(PARALLEL_PYTEST) tests/integration tests/simulation tests/scenarios tests/chaos tests/unit tests/conformance

test-deep: $(DEV)  ## Ten times as many seeds of the simulations, and each property ten times, drawn anew
	ONCELOG_SEEDS=3000 ONCELOG_CLUSTER_SEEDS=60 ONCELOG_REPLICATION_SEEDS=400 $(PARALLEL_PYTEST) tests/simulation
	for run in 1 2 3 4 5 6 7 8 9 10; do $(PARALLEL_PYTEST) -m hypothesis tests/unit tests/simulation || exit 1; done

simulate: $(DEV)  ## Fresh histories in virtual time: make simulate [SEEDS=200] [KINDS=writers,transactions] [KEEP_GOING=1] (prints the kinds); those that failed once: make simulate CORPUS=1; the trace of one, with the fewest faults that still fail: make simulate SEED=writers:17 [SHRINK=1]; those of a history of each kind: SEED=17
	@test -z "$(SHRINK)" || test "$(origin SEED)" != file -a -z "$(CORPUS)" || { echo "SHRINK=1 shrinks one history, which SEED names: make simulate SEED=writers:17 SHRINK=1"; exit 1; }
	$(BIN)/python -m tests.simulation $(if $(CORPUS),corpus,$(if $(filter file,$(origin SEED)),run $(SIMULATED) $(KEEP_GOING:%=--keep-going),replay $(SEED) $(SHRINK:%=--shrink)))

simulate-determinism: $(DEV)  ## Equal traces of histories under three hash seeds: make simulate-determinism [SEEDS=100]
	$(BIN)/python -m tests.simulation determinism $(SIMULATED)

check: $(DEV)  ## Format, lint, types, import contracts, tidiness
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/tidy

house: $(DEV)  ## Measures of the code: import cycles, sizes, words, files that a request crosses: make house [BEFORE=COMMIT]
	$(BIN)/python -m tests.house $(BEFORE:%=--before %)

client-chaos: $(DEV)  ## A thousand schedules of each kind of client over connections that break
	ONCELOG_CHAOS_SCHEDULES=1000 $(BIN)/python -m pytest -q tests/chaos

security: $(DEV)  ## What an attacker tries, cell by cell on live brokers: make security [KIND='logins bombs']
	$(BIN)/python -m tests.security $(KIND)

hostile: $(DEV)  ## Hostile input on a live broker, beside ordinary clients: pauses, memory, harm
	$(BIN)/python -m tests.hostile

faults: $(DEV) .peers/kafka-3.9/.installed .peers/java-client-4/.installed  ## Each fault five times on a real cluster under load, checked record by record
	$(BIN)/python -m tests.faults

faults-secured: $(DEV) .peers/kafka-3.9/.installed .peers/java-client-4/.installed  ## The same with TLS and logins between all, clients too
	$(BIN)/python -m tests.faults --secured

faults-smoke: $(DEV) .peers/kafka-3.9/.installed  ## Half of the faults once, drawn anew, with one client
	$(BIN)/python -m tests.faults --times 1 --sample 24 --clients oncelog --brief --rounds 50

rolling-upgrade: $(DEV) .peers/kafka-3.9/.installed .peers/java-client-4/.installed  ## A cluster from a former commit to this one, back and again, under load: make rolling-upgrade BEFORE=COMMIT [ROUNDS=2]
	@test -n "$(BEFORE)" || { echo "name the former commit: make rolling-upgrade BEFORE=COMMIT"; exit 1; }
	ONCELOG_ZOOKEEPER_JARS=$${ONCELOG_ZOOKEEPER_JARS:-$(CURDIR)/.peers/kafka-3.9/lib} $(BIN)/python -m tests.rolling $(BEFORE) --rounds $(or $(ROUNDS),2)

rolling-security: $(DEV) .peers/kafka-3.9/.installed .peers/java-client-4/.installed  ## A cluster from PLAINTEXT to SASL_SSL with access control lists, step by step as the page says, and back, under load: make rolling-security [ROUNDS=2]
	ONCELOG_ZOOKEEPER_JARS=$${ONCELOG_ZOOKEEPER_JARS:-$(CURDIR)/.peers/kafka-3.9/lib} $(BIN)/python -m tests.rolling.security --rounds $(or $(ROUNDS),2)

interop: $(DEV) peers  ## Real clients and Apache Kafka's own tools, all scenarios
	$(BIN)/python -m pytest -q tests/interop

interop-cluster: $(DEV) peers  ## The same clients against three brokers, every topic with three replicas
	INTEROP_BROKER=cluster $(BIN)/python -m pytest -q -rs tests/interop

interop-smoke: $(DEV) peers  ## One scenario for each real client
	$(BIN)/python -m pytest -q tests/interop -m smoke

interop-cluster-smoke: $(DEV) peers  ## The same on a cluster
	INTEROP_BROKER=cluster $(BIN)/python -m pytest -q tests/interop -m smoke

late-frames: $(DEV) peers  ## Late frames for each of eight clients, on us and on Kafka: make late-frames [FRAMES=1200] (of each client on each broker) [CLIENT=java-client-4] [BROKER=oncelog] [SEED=1]
	$(BIN)/python -m tests.interop.late_frames --seed $(SEED) $(FRAMES:%=--frames %) $(CLIENT:%=--client %) $(BROKER:%=--broker %)

bench: bench-broker bench-cluster  ## Side by side with Apache Kafka on this machine, both of the following

bench-broker: $(DEV) peers  ## One broker beside one of Apache Kafka 4
	$(BIN)/python -m tests.benchmarks.side_by_side

bench-cluster: $(DEV) peers  ## Three brokers beside three of Apache Kafka 3.9 on ZooKeeper
	$(BIN)/python -m tests.benchmarks.cluster_side_by_side

bench-flush: $(DEV) peers  ## One broker that syncs before every response, beside Apache Kafka 4 that does the same
	$(BIN)/python -m tests.benchmarks.flush_side_by_side

bench-security: $(DEV) peers  ## TLS and plaintext beside Apache Kafka 4, and the time of a decision by 10,000 access control lists
	$(BIN)/python -m tests.benchmarks.security_side_by_side

bench-scale: $(DEV) .peers/kafka-3.9/.installed  ## Three brokers, 1,000 partitions of three replicas: time, processor, memory
	$(BIN)/python -m tests.benchmarks.scale

bench-clients: $(DEV) .peers/kafka-3.9/.installed  ## Our Python client beside aiokafka, and both and confluent-kafka while a part of a cluster is sick
	$(BIN)/python -m tests.benchmarks.python_clients
	$(BIN)/python -m tests.benchmarks.disturbed_clients

bench-failover: $(DEV) .peers/kafka-3.9/.installed  ## How long partitions accept nothing when a broker goes
	$(BIN)/python -m tests.benchmarks.failover

bench-before: $(DEV) .peers/kafka-3.9/.installed  ## One broker and a cluster beside themselves at a former commit: make bench-before BEFORE=COMMIT
	@test -n "$(BEFORE)" || { echo "name the former commit: make bench-before BEFORE=COMMIT"; exit 1; }
	$(BIN)/python -m tests.benchmarks.before_and_after $(BEFORE)
	$(BIN)/python -m tests.benchmarks.before_and_after $(BEFORE) --cluster

bench-reload: $(DEV)  ## How long a coordinator reads the history of a million transactions
	$(BIN)/python -m tests.benchmarks.coordinator_reload

model: $(DEV) .peers/tla-tools/.installed  ## The transaction protocol in TLA+, checked by TLC: what each safeguard prevents (needs Java)
	$(BIN)/python -m tests.model

model-deep: $(DEV) .peers/tla-tools/.installed  ## The same, with larger bounds too
	$(BIN)/python -m tests.model --deep

mutations: $(DEV)  ## Take each safeguard away in a copy, and see its test fail
	$(BIN)/python -m tests.mutations

spark-test: $(DEV) $(SPARK) .peers/kafka-4/.installed .peers/spark-kafka/.installed  ## Spark itself, reading and writing (needs Java 17 or later)
	$(BIN)/python -m pytest -q tests/spark -m "not kills and not comparisons"

spark-comparison: $(DEV) $(SPARK) .peers/spark-kafka/.installed .peers/kafka-4/.installed  ## 500 drawn topics and option sets, read by our source and by Spark's own (an hour; needs Java 17 or later)
	$(BIN)/python -m pytest -q tests/spark/test_random_reads.py tests/spark/test_random_streams.py

spark-kills: $(DEV) $(SPARK) .peers/kafka-4/.installed .peers/kafka-3.9/.installed  ## kill -9 of Spark between every two steps of the exactly-once sink, and KILLS times at random (needs Java 17 or later)
	$(BIN)/python -m pytest -q $(SPARK_KILLS:%=tests/spark/test_%.py)
	$(BIN)/python -m tests.spark.random_kills --kills $(KILLS) --seed $(SEED)

spark-smoke: $(DEV) $(SPARK)  ## The short part of it
	$(BIN)/python -m pytest -q tests/spark -m smoke

bench-spark: $(DEV) $(SPARK) .peers/spark-kafka/.installed  ## Our connector beside Spark's own, on one broker of ours
	$(BIN)/python -m tests.benchmarks.spark_side_by_side

demo-spark: $(DEV) $(SPARK)  ## A stream of purchases to invoices, exactly once, through kill -9 (needs Java 17 or later)
	$(BIN)/python -m tests.spark_demo

spark: $(SPARK)  ## PySpark and what the connector needs, into .venv

docs: $(DOCS) .peers/site/.installed  ## The documentation as a site, in build/site; fails on dead links and anchors
	$(BIN)/zensical build --strict --clean
	cp .peers/site/node_modules/mermaid/dist/mermaid.min.js build/site/assets/mermaid.min.js
	cp .peers/site/node_modules/iframe-worker/shim/index.js build/site/assets/iframe-worker.js
	@echo "The site is built: open $(CURDIR)/build/site/index.html"

docs-pages: $(DEV)  ## The reference pages that are generated from the code, anew
	$(BIN)/python -m tests.pages

peers: $(MAVEN_PEERS:%=.peers/%/.installed) .peers/kafkajs/.installed .peers/kcat  ## Other clients and Apache Kafka, into .peers

.peers/%/.installed: tests/peers/%/pom.xml
	@command -v mvn >/dev/null || { echo "Maven is missing: apt-get install maven openjdk-17-jdk-headless"; exit 1; }
	rm -rf $(@D) && mkdir -p $(@D)
	mvn -q -B -Dstyle.color=never -f $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D)/lib
	touch $@

.peers/kafkajs/.installed .peers/site/.installed: .peers/%/.installed: tests/peers/%/package.json
	@command -v npm >/dev/null || { echo "npm is missing: apt-get install nodejs npm"; exit 1; }
	rm -rf $(@D) && mkdir -p $(@D)
	cp $< $(@D)/ && cd $(@D) && npm install --silent --no-audit --no-fund
	touch $@

.peers/kcat:
	@command -v kcat >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq kcat >/dev/null; \
	  command -v kcat >/dev/null || { echo "kcat is missing: apt-get install kcat"; exit 1; }; }
	mkdir -p .peers && touch $@

format: $(DEV)  ## Format the code, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(RUNTIME): pyproject.toml
	@cmp -s $< $@ || { $(call INSTALLING,Oncelog,half a minute) && \
	  { test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); } && $(PIP_INSTALL) --editable .; }
	@cp $< $@

$(DEV): pyproject.toml | $(RUNTIME)
	@$(call INSTALLING,what the tests of Oncelog need,half a minute)
	@$(call INSTALL_EXTRA,dev)
	@touch $@

$(DOCS): pyproject.toml | $(RUNTIME)
	@$(call INSTALLING,what builds the documentation,ten seconds)
	@$(call INSTALL_EXTRA,docs)
	@touch $@

$(SPARK): pyproject.toml | $(RUNTIME)
	@$(call INSTALLING,PySpark,a minute)
	@$(call INSTALL_EXTRA,spark)
	@touch $@

clean:  ## Remove .venv, .peers, build and all caches; data stays
	rm -rf $(VENV) .peers build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
