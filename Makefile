# flamed - one Makefile; the lists below are the architecture (docs/architecture.md).
#
#   make            builds bin/flamed and its children
#   make run        installs what is missing, builds, starts the agent: it profiles this host and shows a page
#   make check      installs what is missing, builds, runs every test
#   make help       the other targets
#
# V=1 shows commands; WERROR=1 makes warnings errors; MODE=release|asan|cov|fuzz.

MODE ?= release
PREFIX ?= /usr/local
ETC ?= /etc
DESTDIR ?=
V ?= 0
WERROR ?= 0

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
MAKEFLAGS += --no-builtin-rules

# ---- what each program is made of ----------------------------------------------------------

BASE := log buf loop io ipc clock box
CONFIG := value schema schema_env schema_print wire check check_all config_sinks config
# The YAML library is the agent's alone.
CONFIG_LOAD := schema_suggest load config_load
SYMBOLIZER_LIB := msg sandbox elffile sections fde cfi expr code rowset gopclntab golang minidebug plt symtab \
	dwarf_form dwarf_code dwarf_line dwarf demangle handles jitmap answer_jit answer_rows answer_names answer_debug dump
SYMBOLIZER := $(SYMBOLIZER_LIB) main
EXPORTER_LIB := msg msg_batch sandbox sandbox_filter sandbox_landlock utf8 cgroup labels names intern tables gzip pprof profiles output shelf directory http push push_queue push_send push_tell push_settings push_request push_reply delivery channel \
	recent flame flame_view services reply access connections listener ondemand jsontext api api_query api_status metrics assets web
EXPORTER := $(EXPORTER_LIB) status main
# The page, exporter/page/: its files are part of the exporter.
PAGE := index.html style.css app.js api.js flame.js tables.js
AGENT_LIB := rights reader reader_open reader_scan reader_cgroup reader_box procmaps perfring readerclient cpulist refusal features sigframe_x86_64 sampler sideband \
	event event_log maps files rows unwind unwind_cfi unwind_x86_64 \
	procs queue sample asks aggregate window batch pipeline pipeline_world pipeline_samples \
	pending learn pipeline_learn pipeline_go pipeline_jit pipeline_labels pipeline_windows \
	kallsyms child symclient debugfiles consignment ledger expclient announce engine engine_programs command profile summary record replay \
	limits timeline place notify settings report daemon labels_command status_command features_command
AGENT := $(AGENT_LIB) main
BPF := sample

PROGRAMS := flamed flamed-symbolizer flamed-exporter

# ---- dependencies: Debian packages, and why (docs/dependencies.md) ---------------------------

DEPS_BUILD := gcc make clang libbpf-dev bpftool libelf-dev libdw-dev zlib1g-dev libzstd-dev liblzma-dev libiberty-dev libseccomp-dev \
	libcap-ng-dev libxxhash-dev libyaml-dev libprotobuf-c-dev protobuf-c-compiler libcurl4-openssl-dev \
	libmicrohttpd-dev libjansson-dev
DEPS_CHECK := g++ lld llvm binutils elfutils dwz xz-utils libcmocka-dev python3 golang-go nodejs openssl linux-perf cppcheck \
	python3-yaml systemd podman runc debootstrap chromium musl-tools \
	qemu-system-x86 busybox-static
DEPS_FUZZ := libclang-rt-dev
DEPS_BENCH := valgrind
DEPS_ACCURACY := default-jdk-headless postgresql sqlite3 cmake ninja-build git zstd gdb perl gawk \
	ruby php-cli python3-greenlet python3-numpy gdc crystal ocaml-nox sbcl luajit

# Profiling needs root. make asks sudo for that alone, so that what is built belongs to who builds it.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)

# ---- compilers ------------------------------------------------------------------------------

CC := /usr/bin/gcc
CLANG := /usr/bin/clang
OUT := build/$(MODE)
ifeq ($(MODE),release)
BIN := bin
else
BIN := $(OUT)/bin
endif

# Otherwise the first that is missing is an error of its own, and then the next.
TOOLS_MISSING := $(filter-out $(wildcard $(CC) $(CLANG) /usr/sbin/bpftool),$(CC) $(CLANG) /usr/sbin/bpftool)
ifneq ($(and $(TOOLS_MISSING),$(filter all install lint workloads,$(or $(MAKECMDGOALS),all))),)
$(error $(TOOLS_MISSING) missing: 'make deps' installs what building needs)
endif

ifeq ($(V),1)
Q :=
say =
else
Q := @
say = @printf '  %-8s %s\n' $(1) $(2);
endif

WARN := -Wall -Wextra -Wconversion -Wshadow -Wmissing-prototypes -Wno-missing-field-initializers
ifeq ($(WERROR),1)
WARN += -Werror
endif
CPPFLAGS := -I. -isystem $(OUT)/gen -D_GNU_SOURCE
CFLAGS := -std=gnu17 -O2 -g $(WARN) -fno-omit-frame-pointer -fPIE
LDFLAGS := -pie
ifeq ($(MODE),release)
CPPFLAGS += -D_FORTIFY_SOURCE=2
CFLAGS += -fstack-protector-strong -fstack-clash-protection
ifeq ($(shell uname -m),x86_64)
CFLAGS += -fcf-protection=full
endif
LDFLAGS += -Wl,-z,relro,-z,now -Wl,-z,noexecstack
else ifeq ($(MODE),asan)
CFLAGS += -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
LDFLAGS += -fsanitize=address,undefined
else ifeq ($(MODE),cov)
CFLAGS += -O0 --coverage
LDFLAGS += --coverage
else ifeq ($(MODE),fuzz)
CC := $(CLANG)
CFLAGS += -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
LDFLAGS += -fsanitize=address,undefined
else
$(error MODE must be release, asan, cov or fuzz)
endif

LIBS_BASE := -lseccomp -lcap-ng -lxxhash
LIBS_flamed := -lbpf -lyaml
LIBS_flamed-symbolizer := -lelf -lz -lzstd -llzma -l:libiberty.a
LIBS_flamed-exporter := -lprotobuf-c -lz -lcurl -lmicrohttpd -ljansson

obj = $(addprefix $(OUT)/$(1)/,$(addsuffix .o,$(2)))
BASE_OBJS := $(call obj,base,$(BASE))
CONFIG_OBJS := $(call obj,config,$(CONFIG))
CONFIG_LOAD_OBJS := $(call obj,config,$(CONFIG_LOAD))
EXPORT_MSG_OBJS := $(call obj,exporter,msg msg_batch)
PROTO_OBJS := $(call obj,gen/exporter,profile.pb-c push.pb-c)
# The two message contracts are linked by both sides of their channel.
OBJS_flamed := $(BASE_OBJS) $(CONFIG_OBJS) $(CONFIG_LOAD_OBJS) $(call obj,agent,$(AGENT)) $(OUT)/symbolizer/msg.o $(EXPORT_MSG_OBJS)
OBJS_flamed-symbolizer := $(BASE_OBJS) $(call obj,symbolizer,$(SYMBOLIZER))
OBJS_flamed-exporter := $(BASE_OBJS) $(CONFIG_OBJS) $(call obj,exporter,$(EXPORTER)) $(PROTO_OBJS)

.PHONY: all
all: $(addprefix $(BIN)/,$(PROGRAMS))
	@:

.SECONDEXPANSION:
# Whatever the umask: when flamed starts its children, it is no longer who built them.
$(addprefix $(BIN)/,$(PROGRAMS)): $(BIN)/%: $$(OBJS_$$*)
	$(call say,LINK,$@)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS_$*) $(LIBS_BASE)
	$(Q)chmod 755 $@

$(OUT)/%.o: %.c
	$(call say,CC,$<)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# One identity for all programs of a build: children refuse an agent of another one.
VERSION := 0.1.0
BUILD_ID := $(VERSION)-$(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unversioned)
$(OUT)/base/ipc.o $(OUT)/agent/main.o: CPPFLAGS += -DFLAMED_VERSION='"$(VERSION)"' -DFLAMED_BUILD_ID='"$(BUILD_ID)"'

# ---- the kernel side ------------------------------------------------------------------------

MULTIARCH := $(shell $(CC) -print-multiarch 2>/dev/null)
BPF_ARCH := $(if $(filter x86_64,$(shell uname -m)),x86,arm64)
$(OUT)/bpf/%.bpf.o: bpf/%.bpf.c $(wildcard bpf/*.h)
	$(call say,BPF,$<)mkdir -p $(@D)
	$(Q)$(CLANG) -target bpf -D__bpf__ -D__TARGET_ARCH_$(BPF_ARCH) -I. -isystem /usr/include/$(MULTIARCH) \
		-g -O2 -Wall $(if $(filter 1,$(WERROR)),-Werror) -c -o $@ $<
$(OUT)/gen/bpf/%.skel.h: $(OUT)/bpf/%.bpf.o
	$(call say,SKEL,$@)mkdir -p $(@D)
	$(Q)/usr/sbin/bpftool gen skeleton $< name $*_bpf > $@
$(OUT)/agent/sampler.o: $(addprefix $(OUT)/gen/bpf/,$(addsuffix .skel.h,$(BPF)))

# ---- the pprof schema -----------------------------------------------------------------------

$(OUT)/gen/exporter/%.pb-c.c: exporter/%.proto
	$(call say,PROTOC,$<)mkdir -p $(@D)
	$(Q)protoc-c --proto_path=exporter --c_out=$(OUT)/gen/exporter $<
$(PROTO_OBJS): %.o: %.c
	$(Q)$(CC) $(CPPFLAGS) $(filter-out -Wconversion -Wshadow -Wmissing-prototypes,$(CFLAGS)) -w -c -o $@ $<
$(OUT)/exporter/pprof.o: $(OUT)/gen/exporter/profile.pb-c.c
$(OUT)/exporter/push_request.o $(OUT)/exporter/push_reply.o: $(OUT)/gen/exporter/push.pb-c.c

# ---- the page's files, in the exporter ------------------------------------------------------

$(OUT)/gen/exporter/assets_list.h: Makefile
	$(call say,GEN,$@)mkdir -p $(@D)
	$(Q)printf '#define ASSETS(X) %s\n' '$(foreach f,$(PAGE),X($(subst .,_,$f), "$f"))' > $@
$(OUT)/exporter/assets.o: $(OUT)/gen/exporter/assets_list.h $(addprefix exporter/page/,$(PAGE))

include tests/tests.mk

-include $(shell test -d build && find $(OUT) -name '*.d' 2>/dev/null)

# ---- everything else ------------------------------------------------------------------------

.PHONY: deps deps-check
deps:
	@tests/deps.sh $(DEPS_BUILD)
deps-check:
	@tests/deps.sh $(DEPS_BUILD) $(DEPS_CHECK)

.PHONY: run
run: deps
	@$(MAKE) --no-print-directory -j$(shell nproc) all
	@$(AS_ROOT) $(BIN)/flamed

.PHONY: lint
lint: all
	@tests/lint/run.sh $(OUT) $(BIN)

.PHONY: format
format:
	clang-format -i $$(git ls-files '*.c' '*.h' | grep -v vmlinux.h)

# README.md and docs/, and what they link to: at the same places relative to each other.
DOCS = README.md $(wildcard docs/*) config/kubernetes/daemonset.yaml \
	$(shell tr '()' '\n\n' < README.md | grep -Ex '[a-z]+/[a-z_./]+\.[a-z]+' | grep -v ^docs/ | sort -u)
# As systemd/flamed.sysusers, where there is no systemd.
USERADD_FLAMED := --system --user-group --home-dir / --no-create-home --shell /usr/sbin/nologin

.PHONY: install
install: all
	install -D -m 755 -t "$(DESTDIR)$(PREFIX)/bin" $(BIN)/flamed
	install -D -m 755 -t "$(DESTDIR)$(PREFIX)/libexec/flamed" $(BIN)/flamed-symbolizer $(BIN)/flamed-exporter
	@for f in $(DOCS); do install -D -m 644 $$f "$(DESTDIR)$(PREFIX)/share/doc/flamed/$$f" || exit 1; done
	install -D -m 644 systemd/flamed.sysusers "$(DESTDIR)$(PREFIX)/lib/sysusers.d/flamed.conf"
	install -d "$(DESTDIR)$(PREFIX)/lib/systemd/system"
	sed 's|/usr/bin/flamed|$(PREFIX)/bin/flamed|; s|/usr/share/doc|$(PREFIX)/share/doc|' systemd/flamed.service \
		> "$(DESTDIR)$(PREFIX)/lib/systemd/system/flamed.service"
	chmod 644 "$(DESTDIR)$(PREFIX)/lib/systemd/system/flamed.service"
	@if [ -n "$(DESTDIR)" ]; then :; \
	elif command -v systemd-sysusers > /dev/null; then systemd-sysusers "$(PREFIX)/lib/sysusers.d/flamed.conf"; \
	elif ! getent passwd flamed > /dev/null; then useradd $(USERADD_FLAMED) flamed; fi
	@if [ ! -e "$(DESTDIR)$(ETC)/flamed/flamed.yaml" ]; then \
		set -x; install -D -m 640 -t "$(DESTDIR)$(ETC)/flamed" config/flamed.yaml; \
		if [ -z "$(DESTDIR)" ] && getent group flamed > /dev/null; then chgrp flamed "$(ETC)/flamed/flamed.yaml"; fi; \
	fi

.PHONY: clean
clean:
	rm -rf build bin

.PHONY: help
help:
	@printf '  %-10s %s\n' \
		deps 'installs the Debian packages that building needs (as root, or with sudo)' \
		all 'builds bin/flamed and its children; the default' \
		install 'puts programs, unit, user, settings and documents in place: PREFIX=$(PREFIX) ETC=$(ETC) DESTDIR=' \
		run 'deps, all, and starts flamed: it profiles this host and shows a page' \
		check 'installs what tests need, builds, runs every test; TESTS="words" only those end-to-end tests' \
		deps-check 'installs the packages that building and testing need' \
		lint 'what can be said of the source without running it' \
		accuracy 'how complete the stacks of many real programs are, into docs/accuracy.md' \
		bench 'what flamed costs, into docs/benchmarks.md' \
		kernels 'boots other kernels with flamed, prints what each offers, into docs/kernels.md' \
		golden 'makes the recordings of tests/golden anew, in a guest' \
		fuzz 'each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)' \
		format 'clang-format over all of C' \
		clean 'removes build/ and bin/'
	@echo 'Variables: MODE=release|asan|cov|fuzz, V=1 shows commands, WERROR=1 makes warnings errors.'
