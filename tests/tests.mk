# The tests. A unit test program is tests/unit/test_NAME.c; TEST_OBJS_NAME are the real objects it links.

UNIT :=

# For tests that fail the nth allocation (tests/unit/alloc_fail.h).
ALLOC_FAIL_OBJ = $(OUT)/tests/unit/alloc_fail.o
ALLOC_FAIL_LDFLAGS = $(foreach f,malloc calloc realloc reallocarray strdup strndup,-Wl,--wrap=$(f))

UNIT_PROGRAMS = $(addprefix $(OUT)/tests/unit/test_,$(UNIT))
$(OUT)/tests/unit/test_%: $(OUT)/tests/unit/test_%.o $$(TEST_OBJS_$$*)
	$(call say,LINK,$@)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(TEST_LDFLAGS_$*) -o $@ $^ $(TEST_LIBS_$*) $(LIBS_BASE) -lcmocka
	$(Q)chmod 755 $@

# Fuzz targets: replay_NAME runs the committed corpus with any compiler; with MODE=fuzz, fuzz_NAME is libFuzzer's.
FUZZ :=
FUZZ_REPLAYS = $(addprefix $(OUT)/tests/fuzz/replay_,$(FUZZ))
$(OUT)/tests/fuzz/replay_%: $(OUT)/tests/fuzz/fuzz_%.o $(OUT)/tests/fuzz/replay_main.o $$(FUZZ_OBJS_$$*)
	$(call say,LINK,$@)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(FUZZ_LIBS_$*) $(LIBS_BASE)
$(OUT)/tests/fuzz/fuzz_%: $(OUT)/tests/fuzz/fuzz_%.o $$(FUZZ_OBJS_$$*)
	$(call say,LINK,$@)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(FUZZ_LIBS_$*) $(LIBS_BASE)

# base and config
UNIT += buf log loop ipc config
TEST_OBJS_buf := $(OUT)/base/buf.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_buf := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_log := $(OUT)/base/log.o $(OUT)/base/clock.o
TEST_OBJS_loop := $(OUT)/base/loop.o $(OUT)/base/clock.o
TEST_OBJS_ipc := $(BASE_OBJS) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_ipc := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_config := $(CONFIG_OBJS) $(BASE_OBJS) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_config := $(ALLOC_FAIL_LDFLAGS)
TEST_LIBS_config := -lyaml

# exporter
UNIT += msg_exporter labels intern pprof exporter_sandbox exporter
TEST_OBJS_msg_exporter := $(OUT)/exporter/msg.o $(OUT)/base/buf.o $(OUT)/tests/unit/export_fixture.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_msg_exporter := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_labels := $(call obj,exporter,labels utf8)
TEST_OBJS_intern := $(OUT)/exporter/intern.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_intern := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_pprof := $(call obj,exporter,pprof tables gzip intern labels utf8 msg) $(OUT)/gen/exporter/profile.pb-c.o \
	$(OUT)/base/buf.o $(call obj,tests/unit,export_fixture pprof_check) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_pprof := $(ALLOC_FAIL_LDFLAGS)
TEST_LIBS_pprof := -lprotobuf-c -lz
TEST_OBJS_exporter_sandbox := $(OUT)/exporter/sandbox.o
TEST_OBJS_exporter := $(OUT)/exporter/msg.o $(BASE_OBJS) $(call obj,tests/unit,export_fixture)
$(OUT)/tests/unit/pprof_check.o $(OUT)/tests/unit/test_pprof.o: $(OUT)/gen/exporter/profile.pb-c.c
# It runs the program itself.
$(OUT)/tests/unit/test_exporter: | $(BIN)/flamed-exporter
$(OUT)/tests/unit/test_exporter.o: CPPFLAGS += -DEXPORTER_PATH='"$(BIN)/flamed-exporter"'

# symbolizer
UNIT += msg_symbolizer cfi symtab demangle symbolizer_sandbox elffile answer
SYMBOLIZER_LIB_OBJS := $(call obj,symbolizer,msg elffile fde cfi expr code rowset golang symtab demangle handles answer) \
	$(BASE_OBJS)
SYMBOLIZER_TEST_OBJS := $(SYMBOLIZER_LIB_OBJS) $(OUT)/tests/unit/elf_fixture.o
SYMBOLIZER_TEST_LIBS := -lelf -lz -l:libiberty.a
TEST_OBJS_msg_symbolizer := $(OUT)/symbolizer/msg.o $(OUT)/base/buf.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_msg_symbolizer := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_cfi := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_cfi := $(SYMBOLIZER_TEST_LIBS)
TEST_OBJS_symtab := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_symtab := $(SYMBOLIZER_TEST_LIBS)
TEST_OBJS_demangle := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_demangle := $(SYMBOLIZER_TEST_LIBS)
TEST_OBJS_symbolizer_sandbox := $(OUT)/symbolizer/sandbox.o $(OUT)/base/log.o $(OUT)/base/clock.o
TEST_OBJS_elffile := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_elffile := $(SYMBOLIZER_TEST_LIBS)
TEST_OBJS_answer := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_answer := $(SYMBOLIZER_TEST_LIBS)

# It runs the program itself.
UNIT += symbolizer
TEST_OBJS_symbolizer := $(OUT)/symbolizer/msg.o $(BASE_OBJS)
$(OUT)/tests/unit/test_symbolizer: | $(BIN)/flamed-symbolizer
$(OUT)/tests/unit/test_symbolizer.o: CPPFLAGS += -DSYMBOLIZER_PATH='"$(BIN)/flamed-symbolizer"'

# symbolizer: fuzz targets; FUZZ_OBJS_NAME are the real objects that tests/fuzz/fuzz_NAME.c links.
FUZZ += elf demangle msg_symbolizer
FUZZ_OBJS_elf := $(SYMBOLIZER_LIB_OBJS)
FUZZ_LIBS_elf := $(SYMBOLIZER_TEST_LIBS)
FUZZ_OBJS_demangle := $(SYMBOLIZER_LIB_OBJS)
FUZZ_LIBS_demangle := $(SYMBOLIZER_TEST_LIBS)
FUZZ_OBJS_msg_symbolizer := $(OUT)/symbolizer/msg.o $(OUT)/base/buf.o

# agent: maps, files, rows, unwind
UNIT += maps files rows unwind unwind_ends selfunwind
TEST_OBJS_maps := $(call obj,agent,maps files rows) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_maps := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_files := $(call obj,agent,files rows) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_files := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_rows := $(call obj,agent,rows) $(OUT)/tests/unit/rows_fixture.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_rows := $(ALLOC_FAIL_LDFLAGS)
UNWIND_OBJS := $(call obj,agent,maps files rows unwind unwind_cfi unwind_x86_64)
TEST_OBJS_unwind := $(UNWIND_OBJS) $(call obj,tests/unit,rows_fixture unwind_fixture)
TEST_OBJS_unwind_ends := $(TEST_OBJS_unwind)
# The symbolizer's code and the agent's in one program, as nowhere else: rows of real files.
TEST_OBJS_selfunwind = $(UNWIND_OBJS) $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_selfunwind = $(TEST_LIBS_answer)

# ---- workloads: programs of known call chains (tests/workloads/), compiled as distributions do -------

WORKLOADS := chain_c chain_pie chain_nopie chain_static chain_stripped chain_lld chain_cpp threads4 recurse \
	syscall_loop clock_loop duty timer_duty short5 spawner stack_kib go_spin
WORKLOAD_CFLAGS := -O2 -g -fomit-frame-pointer -fstack-protector-strong -D_GNU_SOURCE $(WARN)
WORKLOAD_SOURCE_chain_pie := chain_c.c
WORKLOAD_SOURCE_chain_nopie := chain_c.c
WORKLOAD_SOURCE_chain_static := chain_c.c
WORKLOAD_SOURCE_chain_stripped := chain_c.c
WORKLOAD_SOURCE_chain_lld := chain_c.c
WORKLOAD_SOURCE_chain_cpp := chain_cpp.cc
WORKLOAD_FLAGS_chain_pie := -fPIE -pie
WORKLOAD_FLAGS_chain_nopie := -fno-pie -no-pie
WORKLOAD_FLAGS_chain_static := -static
WORKLOAD_FLAGS_chain_stripped := -s
WORKLOAD_FLAGS_chain_lld := -fuse-ld=lld
WORKLOAD_FLAGS_threads4 := -pthread
WORKLOAD_CC_chain_lld := /usr/bin/clang
WORKLOAD_CC_chain_cpp := /usr/bin/g++

.PHONY: workloads
workloads: $(addprefix $(OUT)/workloads/,$(WORKLOADS))
$(OUT)/workloads/go_spin: tests/workloads/go/spin.go
	$(call say,GO,$@)mkdir -p $(@D)
	$(Q)env -u GOROOT -u GOFLAGS GO111MODULE=off GOCACHE='$(abspath $(OUT))/gocache' CGO_ENABLED=0 \
		/usr/bin/go build -o $@ $<
workload_source = tests/workloads/$(or $(WORKLOAD_SOURCE_$(1)),$(1).c)
$(OUT)/workloads/%: $$(call workload_source,$$*) tests/workloads/workload.h
	$(call say,WORKLOAD,$@)mkdir -p $(@D)
	$(Q)$(or $(WORKLOAD_CC_$*),/usr/bin/gcc) $(filter-out $(if $(filter %.cc,$<),-Wmissing-prototypes), \
		$(WORKLOAD_CFLAGS)) $(WORKLOAD_FLAGS_$*) -o $@ $<

# what the agent hears of processes and files
UNIT += event procmaps rights sideband reader readerclient
READER_OBJS := $(call obj,agent,reader reader_open reader_scan reader_box procmaps perfring sideband rights event) \
	$(OUT)/symbolizer/msg.o $(BASE_OBJS)
TEST_OBJS_event := $(READER_OBJS) $(OUT)/agent/event_log.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_event := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_procmaps := $(OUT)/agent/procmaps.o
TEST_OBJS_rights := $(OUT)/agent/rights.o $(BASE_OBJS)
TEST_OBJS_sideband := $(call obj,agent,sideband perfring) $(BASE_OBJS)
TEST_OBJS_reader := $(READER_OBJS)
TEST_OBJS_readerclient := $(call obj,agent,readerclient child) $(READER_OBJS) $(OUT)/tests/unit/fuse_server.o

# agent: from events to batches, and the children
UNIT += procs queue aggregate batch window pipeline pipeline_life child kallsyms command
TEST_OBJS_procs := $(call obj,agent,procs maps files rows) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_procs := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_queue := $(call obj,agent,queue) $(OUT)/base/clock.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_queue := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_aggregate := $(UNWIND_OBJS) $(call obj,agent,aggregate procs) $(OUT)/base/clock.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_aggregate := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_batch := $(OUT)/agent/batch.o $(OUT)/exporter/msg.o $(BASE_OBJS) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_batch := $(ALLOC_FAIL_LDFLAGS)
PIPELINE_OBJS := $(UNWIND_OBJS) $(call obj,agent,procs queue sample asks aggregate window batch pipeline pipeline_world pipeline_samples \
	event event_log) \
	$(OUT)/symbolizer/msg.o $(OUT)/exporter/msg.o $(BASE_OBJS)
TEST_OBJS_window := $(PIPELINE_OBJS)
TEST_OBJS_pipeline := $(PIPELINE_OBJS) $(call obj,tests/unit,pipeline_fixture rows_fixture)
TEST_OBJS_pipeline_life := $(TEST_OBJS_pipeline)
TEST_OBJS_child := $(call obj,agent,child symclient) $(OUT)/symbolizer/msg.o $(BASE_OBJS)
TEST_OBJS_kallsyms := $(OUT)/agent/kallsyms.o $(BASE_OBJS)
TEST_OBJS_command := $(OUT)/agent/command.o $(BASE_OBJS)

# the BPF program and what loads it: root, or CAP_BPF and CAP_PERFMON
UNIT += cpulist sample sampler
SAMPLER_OBJS := $(call obj,agent,sampler cpulist) $(BASE_OBJS)
TEST_OBJS_sample := $(SAMPLER_OBJS) $(OUT)/tests/unit/sampler_fixture.o
TEST_LIBS_sample := -lbpf -pthread
TEST_OBJS_sampler := $(TEST_OBJS_sample)
TEST_LIBS_sampler := -lbpf -lm
TEST_OBJS_cpulist := $(OUT)/agent/cpulist.o

# ---- benchmarks: `make bench` prints a table and writes docs/benchmarks.md; BENCH_ARGS='--quick --only cpu'

BENCH := bpf_cost bench_unwind bench_cold bench_work
BENCH_PROGRAMS = $(addprefix $(OUT)/tests/bench/,$(BENCH))
BENCH_OBJS_bpf_cost := $(SAMPLER_OBJS)
BENCH_LIBS_bpf_cost := -lbpf
BENCH_OBJS_bench_unwind := $(UNWIND_OBJS) $(OUT)/tests/unit/rows_fixture.o $(BASE_OBJS)
BENCH_OBJS_bench_work := $(BASE_OBJS)
BENCH_OBJS_bench_cold := $(call obj,agent,symclient child) $(OUT)/symbolizer/msg.o $(BASE_OBJS)
$(BENCH_PROGRAMS): $(OUT)/tests/bench/%: $(OUT)/tests/bench/%.o $$(BENCH_OBJS_$$*)
	$(call say,LINK,$@)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(BENCH_LIBS_$*) $(LIBS_BASE)

.PHONY: bench bench-built
bench: deps-check
	@tests/deps.sh $(DEPS_BENCH)
	@$(MAKE) --no-print-directory bench-built
bench-built: all workloads $(BENCH_PROGRAMS)
	@$(AS_ROOT) env BENCH_BIN='$(abspath $(BIN))' BENCH_BUILD='$(abspath $(OUT))' \
		tests/bench/bench.py $(or $(BENCH_ARGS),--write docs/benchmarks.md)

# ---- fuzz targets of the agent and the exporter ----------------------------------------------------

FUZZ += msg_exporter sideband procmaps eventlog unwind
FUZZ_OBJS_msg_exporter := $(call obj,exporter,pprof tables gzip intern labels utf8 msg) \
	$(OUT)/gen/exporter/profile.pb-c.o $(OUT)/base/buf.o $(call obj,tests/unit,pprof_check)
FUZZ_LIBS_msg_exporter := -lprotobuf-c -lz
FUZZ_OBJS_sideband := $(call obj,agent,sideband perfring) $(BASE_OBJS)
FUZZ_OBJS_procmaps := $(OUT)/agent/procmaps.o
FUZZ_OBJS_eventlog := $(call obj,agent,event event_log) $(OUT)/symbolizer/msg.o $(BASE_OBJS)
FUZZ_OBJS_unwind := $(UNWIND_OBJS) $(OUT)/tests/unit/rows_fixture.o $(OUT)/base/buf.o

# FUZZ_SECONDS each, one after the other; findings and new inputs stay under build/fuzz.
FUZZ_SECONDS ?= 60
.PHONY: fuzz fuzz-built
fuzz: deps-check
	@tests/deps.sh $(DEPS_FUZZ)
	@$(MAKE) --no-print-directory -j$(shell nproc) MODE=fuzz fuzz-built
fuzz-built: $(addprefix $(OUT)/tests/fuzz/fuzz_,$(FUZZ))
	@set -e; for name in $(FUZZ); do \
		mkdir -p $(OUT)/corpus/$$name; \
		echo "fuzz_$$name, $(FUZZ_SECONDS) s"; \
		(cd $(OUT)/corpus && ../tests/fuzz/fuzz_$$name -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 \
			-print_final_stats=1 $$name '$(CURDIR)/tests/fuzz/corpus/'$$name 2>&1 | tail -n 8); \
	done

# ---- everything at once ------------------------------------------------------------------------------
# `make check TESTS='test_cli chains'` runs only the end-to-end tests with these words in their names.

# Programs that a sanitizer has no use for: they are about seccomp filters, which sanitizer builds leave out, or
# copy their own stack, the sanitizer's red zones with it, or are about what the kernel copies.
NOT_SANITIZED := symbolizer_sandbox exporter_sandbox selfunwind sample sampler
SANITIZED = $(filter-out $(addprefix %/test_,$(NOT_SANITIZED)),$(UNIT_PROGRAMS)) $(FUZZ_REPLAYS)

.PHONY: check check-built sanitized
check: deps-check
	@$(MAKE) --no-print-directory -j$(shell nproc) check-built
check-built: all workloads $$(UNIT_PROGRAMS) $$(FUZZ_REPLAYS)
	@$(MAKE) --no-print-directory MODE=asan sanitized
	@mkdir -p $(OUT)/cppcheck # so that it is ours, not root's
	@$(AS_ROOT) env E2E_BIN='$(abspath $(BIN))' E2E_WORKLOADS='$(abspath $(OUT))/workloads' \
		tests/e2e/run.py $(TESTS) --unit tests/lint/run.sh $(UNIT_PROGRAMS) $(FUZZ_REPLAYS) \
		$(subst $(OUT)/,build/asan/,$(SANITIZED))
sanitized: $$(SANITIZED)
	@:

# Programs too large or too special for `check`; ACCURACY_ARGS='openssl java' runs only rows with these words.
.PHONY: accuracy accuracy-built
accuracy: deps-check
	@$(MAKE) --no-print-directory -j$(shell nproc) accuracy-built
accuracy-built: all $(OUT)/workloads/go_spin
	@$(AS_ROOT) env E2E_BIN='$(abspath $(BIN))' E2E_WORKLOADS='$(abspath $(OUT))/workloads' \
		tests/e2e/accuracy.py $(or $(ACCURACY_ARGS),--write docs/accuracy.md)
