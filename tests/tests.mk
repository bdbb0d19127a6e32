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
UNIT += buf log loop ipc config config_endpoints config_wire
TEST_OBJS_buf := $(OUT)/base/buf.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_buf := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_log := $(OUT)/base/log.o $(OUT)/base/clock.o
TEST_OBJS_loop := $(OUT)/base/loop.o $(OUT)/base/clock.o
TEST_OBJS_ipc := $(BASE_OBJS) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_ipc := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_config := $(CONFIG_OBJS) $(CONFIG_LOAD_OBJS) $(BASE_OBJS) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_config := $(ALLOC_FAIL_LDFLAGS)
TEST_LIBS_config := -lyaml
TEST_OBJS_config_endpoints := $(CONFIG_OBJS) $(CONFIG_LOAD_OBJS) $(BASE_OBJS) $(OUT)/tests/unit/config_fixture.o
TEST_LIBS_config_endpoints := -lyaml
TEST_OBJS_config_wire := $(TEST_OBJS_config_endpoints) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_config_wire := $(ALLOC_FAIL_LDFLAGS)
TEST_LIBS_config_wire := -lyaml

# exporter
UNIT += msg_exporter labels intern pprof exporter_sandbox exporter
TEST_OBJS_msg_exporter := $(EXPORT_MSG_OBJS) $(OUT)/base/buf.o $(OUT)/tests/unit/export_fixture.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_msg_exporter := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_labels := $(call obj,exporter,labels cgroup utf8) $(OUT)/config/value.o $(OUT)/base/buf.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_labels := $(ALLOC_FAIL_LDFLAGS)
UNIT += cgroup names profiles
TEST_OBJS_names := $(EXPORT_MSG_OBJS) $(call obj,exporter,names labels cgroup intern utf8) $(OUT)/config/value.o $(BASE_OBJS) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_names := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_cgroup := $(OUT)/exporter/cgroup.o
$(OUT)/tests/unit/test_cgroup.o: CPPFLAGS += -DCGROUP_VECTORS='"tests/unit/cgroup_vectors.tsv"'
EXPORT_PROFILE_OBJS := $(call obj,exporter,profiles pprof tables gzip intern labels cgroup utf8) $(EXPORT_MSG_OBJS) \
	$(OUT)/config/value.o $(OUT)/base/buf.o $(PROTO_OBJS)
TEST_OBJS_profiles := $(EXPORT_PROFILE_OBJS) $(OUT)/base/clock.o $(call obj,tests/unit,export_fixture pprof_check) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_profiles := $(ALLOC_FAIL_LDFLAGS)
TEST_LIBS_profiles := -lprotobuf-c -lz
$(OUT)/tests/unit/test_profiles.o $(OUT)/tests/fuzz/fuzz_msg_exporter.o: $(OUT)/gen/exporter/profile.pb-c.c
TEST_OBJS_intern := $(OUT)/exporter/intern.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_intern := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_pprof := $(TEST_OBJS_profiles)
TEST_LDFLAGS_pprof := $(ALLOC_FAIL_LDFLAGS)
TEST_LIBS_pprof := -lprotobuf-c -lz
SANDBOX_OBJS := $(call obj,exporter,sandbox sandbox_filter sandbox_landlock) $(OUT)/base/box.o
TEST_OBJS_exporter_sandbox := $(SANDBOX_OBJS)
TEST_OBJS_exporter_tls := $(SANDBOX_OBJS) $(OUT)/exporter/http.o $(BASE_OBJS)
TEST_LIBS_exporter_tls := -lcurl
UNIT += push push_reply directory delivery exporter_tls
PUSH_OBJS := $(call obj,exporter,push push_queue push_send push_tell push_settings push_request push_reply http)
TEST_OBJS_push := $(PUSH_OBJS) $(EXPORT_PROFILE_OBJS) $(filter-out %/buf.o,$(BASE_OBJS)) $(OUT)/tests/unit/http_fixture.o
TEST_OBJS_push_reply := $(call obj,exporter,push_reply utf8) $(OUT)/gen/exporter/push.pb-c.o
TEST_LIBS_push_reply := -ljansson -lprotobuf-c
TEST_LIBS_push := -lcurl -ljansson -lprotobuf-c -lz
$(OUT)/tests/unit/test_push.o: $(OUT)/gen/exporter/push.pb-c.c
TEST_OBJS_directory := $(call obj,exporter,shelf directory) $(EXPORT_PROFILE_OBJS) $(filter-out %/buf.o,$(BASE_OBJS))
TEST_LIBS_directory := -lprotobuf-c -lz
# It runs the program itself.
TEST_OBJS_delivery := $(EXPORT_MSG_OBJS) $(CONFIG_OBJS) $(CONFIG_LOAD_OBJS) $(BASE_OBJS) \
	$(call obj,tests/unit,export_fixture http_fixture)
TEST_LIBS_delivery := -lyaml
$(OUT)/tests/unit/test_delivery: | $(BIN)/flamed-exporter
$(OUT)/tests/unit/test_delivery.o: CPPFLAGS += -DEXPORTER_PATH='"$(BIN)/flamed-exporter"'
TEST_OBJS_exporter := $(EXPORT_MSG_OBJS) $(BASE_OBJS) $(call obj,tests/unit,export_fixture)
$(OUT)/tests/unit/pprof_check.o $(OUT)/tests/unit/test_pprof.o: $(OUT)/gen/exporter/profile.pb-c.c
# It runs the program itself.
$(OUT)/tests/unit/test_exporter: | $(BIN)/flamed-exporter
$(OUT)/tests/unit/test_exporter.o: CPPFLAGS += -DEXPORTER_PATH='"$(BIN)/flamed-exporter"'

# exporter: what it serves
UNIT += recent flame services connections web web_api web_crowd api_bounds api_doc
TEST_OBJS_services := $(call obj,exporter,services jsontext labels cgroup utf8 intern) $(OUT)/config/value.o $(OUT)/base/buf.o
TEST_LIBS_services := -ljansson
TEST_OBJS_connections := $(OUT)/exporter/connections.o
TEST_OBJS_recent := $(call obj,exporter,recent) $(EXPORT_MSG_OBJS) $(OUT)/base/buf.o $(OUT)/tests/unit/export_fixture.o \
	$(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_recent := $(ALLOC_FAIL_LDFLAGS)
TEST_LIBS_recent := -lz
TEST_OBJS_flame := $(call obj,exporter,flame flame_view intern utf8) $(OUT)/tests/unit/export_fixture.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_flame := $(ALLOC_FAIL_LDFLAGS)
WEB_OBJS := $(call obj,exporter,web jsontext api api_query api_status metrics connections listener access reply ondemand assets recent flame flame_view services \
	status labels names cgroup utf8 intern tables gzip pprof) $(EXPORT_MSG_OBJS) $(CONFIG_OBJS) $(BASE_OBJS) \
	$(OUT)/gen/exporter/profile.pb-c.o
TEST_OBJS_web := $(WEB_OBJS) $(call obj,tests/unit,web_fixture export_fixture pprof_check)
TEST_LIBS_web := -lmicrohttpd -ljansson -lcurl -lprotobuf-c -lz
TEST_OBJS_web_api := $(TEST_OBJS_web)
TEST_LIBS_web_api := $(TEST_LIBS_web)
TEST_OBJS_api_doc := $(EXPORT_MSG_OBJS) $(OUT)/base/buf.o
TEST_OBJS_api_bounds := $(WEB_OBJS)
TEST_LIBS_api_bounds := $(TEST_LIBS_web)
TEST_OBJS_web_crowd := $(TEST_OBJS_web)
TEST_LIBS_web_crowd := $(TEST_LIBS_web)
$(OUT)/tests/unit/test_web.o: $(OUT)/gen/exporter/profile.pb-c.c

# symbolizer
UNIT += debugfiles jitmap msg_symbolizer code cfi symtab plt gopclntab demangle symbolizer_sandbox elffile answer
SYMBOLIZER_LIB_OBJS := $(call obj,symbolizer,msg elffile sections fde cfi expr code rowset gopclntab golang minidebug plt symtab \
	dwarf_form dwarf_code dwarf_line dwarf demangle handles jitmap answer_jit answer_rows answer_names answer_debug) \
	$(BASE_OBJS)
SYMBOLIZER_TEST_OBJS := $(SYMBOLIZER_LIB_OBJS) $(OUT)/tests/unit/elf_fixture.o
SYMBOLIZER_TEST_LIBS := -lelf -lz -lzstd -llzma -l:libiberty.a
TEST_OBJS_msg_symbolizer := $(OUT)/symbolizer/msg.o $(OUT)/base/buf.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_msg_symbolizer := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_debugfiles := $(call obj,agent,debugfiles) $(OUT)/base/log.o $(OUT)/base/clock.o
TEST_OBJS_jitmap := $(call obj,symbolizer,jitmap) $(BASE_OBJS)
TEST_OBJS_code := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_code := $(SYMBOLIZER_TEST_LIBS)
TEST_OBJS_cfi := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_cfi := $(SYMBOLIZER_TEST_LIBS)
TEST_OBJS_symtab := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_symtab := $(SYMBOLIZER_TEST_LIBS)
TEST_OBJS_plt := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_plt := $(SYMBOLIZER_TEST_LIBS)
TEST_OBJS_gopclntab := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_gopclntab := $(SYMBOLIZER_TEST_LIBS)
# What its table is compared with.
$(OUT)/tests/unit/test_gopclntab: | $(OUT)/workloads/go_spin
$(OUT)/tests/unit/test_gopclntab.o: CPPFLAGS += -DGO_PROGRAM='"$(OUT)/workloads/go_spin"'
TEST_OBJS_demangle := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_demangle := $(SYMBOLIZER_TEST_LIBS)
TEST_OBJS_symbolizer_sandbox := $(OUT)/symbolizer/sandbox.o $(OUT)/base/box.o $(OUT)/base/log.o $(OUT)/base/clock.o
UNIT += sections dwarf_bounds
TEST_OBJS_dwarf_bounds := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_dwarf_bounds := $(SYMBOLIZER_TEST_LIBS)
TEST_OBJS_sections := $(SYMBOLIZER_TEST_OBJS)
TEST_LIBS_sections := $(SYMBOLIZER_TEST_LIBS)
TEST_LDFLAGS_sections := -Wl,--wrap=reallocarray
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
FUZZ += jitmap elf demangle dwarf gopclntab msg_symbolizer rows
FUZZ_OBJS_jitmap := $(call obj,symbolizer,jitmap) $(BASE_OBJS)
FUZZ_OBJS_dwarf := $(SYMBOLIZER_LIB_OBJS)
FUZZ_LIBS_dwarf := $(SYMBOLIZER_TEST_LIBS)
FUZZ_OBJS_rows := $(SYMBOLIZER_LIB_OBJS)
FUZZ_LIBS_rows := $(SYMBOLIZER_TEST_LIBS)
FUZZ_OBJS_gopclntab := $(SYMBOLIZER_LIB_OBJS)
FUZZ_LIBS_gopclntab := $(SYMBOLIZER_TEST_LIBS)
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
	syscall_loop clock_loop duty timer_duty short5 spawner stack_kib fuse_server go_spin refuse user \
	chain_debug_frame chain_no_cfi zero_frames chain_static_pie odd_rows odd_roots plt_lazy plt_sec plt_got plt_lld \
	vfork_loop noreturn realign own_sigreturn deep jit_page jit_names spin32 no_start_cfi no_start_debug short_threads \
	pieces pieces_fp wild_stacks split_stack libplugin_one.so libplugin_two.so plugin_host exec_over_one exec_over_two \
	go_stripped go_pie go_paths go_cgo go_cgo_stripped libgo_shared.so go_host
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
WORKLOAD_SOURCE_chain_debug_frame := chain_c.c
WORKLOAD_SOURCE_chain_no_cfi := chain_c.c
WORKLOAD_SOURCE_chain_static_pie := chain_c.c
# C without .eh_frame has .debug_frame with -g; crt1.o and libc have .eh_frame.
WORKLOAD_FLAGS_chain_debug_frame := -fno-asynchronous-unwind-tables
WORKLOAD_FLAGS_zero_frames := -fno-asynchronous-unwind-tables -Wl,--strip-debug
WORKLOAD_FLAGS_chain_no_cfi := -fno-asynchronous-unwind-tables -Wl,--strip-debug
WORKLOAD_FLAGS_chain_static_pie := -fPIE -static-pie
$(foreach p,lazy sec got lld,$(eval WORKLOAD_SOURCE_plt_$(p) := plt_calls.c))
WORKLOAD_FLAGS_plt_lazy := -fno-builtin -fno-pie -no-pie -fcf-protection=none -Wl,-z,lazy
WORKLOAD_FLAGS_plt_sec := -fno-builtin -fcf-protection=full -Wl,-z,lazy,-z,ibtplt
WORKLOAD_FLAGS_plt_got := -fno-builtin -DPLT_GOT -fcf-protection=none -Wl,-z,now
WORKLOAD_FLAGS_plt_lld := -fno-builtin -fuse-ld=lld -Wl,-z,lazy
WORKLOAD_CC_plt_lld := /usr/bin/clang
WORKLOAD_FLAGS_odd_roots := -pthread
WORKLOAD_FLAGS_short_threads := -pthread
WORKLOAD_FLAGS_pieces := -pthread
WORKLOAD_SOURCE_pieces_fp := pieces.c
WORKLOAD_FLAGS_pieces_fp := -pthread -fno-omit-frame-pointer
WORKLOAD_FLAGS_split_stack := -fsplit-stack
WORKLOAD_SOURCE_spin32 := spin32.S
WORKLOAD_FLAGS_spin32 := -m32 -nostdlib -static
WORKLOAD_SOURCE_no_start_cfi := no_start_files.S
WORKLOAD_FLAGS_no_start_cfi := -nostdlib -static
WORKLOAD_SOURCE_no_start_debug := no_start_files.S
WORKLOAD_FLAGS_no_start_debug := -nostdlib -static-pie -DDEBUG_FRAME
WORKLOAD_SOURCE_libplugin_one.so := plugin.c
WORKLOAD_SOURCE_libplugin_two.so := plugin.c
WORKLOAD_FLAGS_libplugin_one.so := -fPIC -shared
WORKLOAD_FLAGS_libplugin_two.so := -fPIC -shared -DPLUGIN=plugin_two
WORKLOAD_FLAGS_plugin_host := -pthread
WORKLOAD_SOURCE_exec_over_one := exec_over.c
WORKLOAD_SOURCE_exec_over_two := exec_over.c
WORKLOAD_FLAGS_exec_over_one := -static -no-pie
WORKLOAD_FLAGS_exec_over_two := -static -no-pie -DEXEC_OVER_TWO
WORKLOAD_CC_chain_lld := /usr/bin/clang
WORKLOAD_CC_chain_cpp := /usr/bin/g++

.PHONY: workloads
workloads: $(addprefix $(OUT)/workloads/,$(WORKLOADS))
GO_BUILD = env -u GOROOT -u GOFLAGS GO111MODULE=off GOCACHE='$(abspath $(OUT))/gocache' CGO_ENABLED=$(or $(CGO_$*),0) \
	/usr/bin/go build
GO_SOURCE_stripped := spin
GO_FLAGS_stripped := -ldflags='-s -w'
# Its table has no section of its own, and is found by its header.
GO_SOURCE_pie := spin
GO_FLAGS_pie := -buildmode=pie -ldflags='-s -w -linkmode=external'
CGO_pie := 1
GO_FLAGS_paths := -ldflags='-s -w'
CGO_cgo := 1
GO_SOURCE_cgo_stripped := cgo
GO_FLAGS_cgo_stripped := -ldflags='-s -w'
CGO_cgo_stripped := 1
.SECONDEXPANSION:
$(addprefix $(OUT)/workloads/go_,spin stripped pie paths cgo cgo_stripped): \
		$(OUT)/workloads/go_%: tests/workloads/go/$$(or $$(GO_SOURCE_$$*),$$*).go
	$(call say,GO,$@)mkdir -p $(@D)
	$(Q)$(GO_BUILD) $(GO_FLAGS_$*) -o $@ $<
$(OUT)/workloads/libgo_%.so: CGO_shared := 1
$(OUT)/workloads/libgo_%.so: tests/workloads/go/%.go
	$(call say,GO,$@)mkdir -p $(@D)
	$(Q)$(GO_BUILD) -buildmode=c-shared -o $@ $<
$(OUT)/workloads/go_host: | $(OUT)/workloads/libgo_shared.so
WORKLOAD_FLAGS_go_host = -L$(OUT)/workloads -Wl,-rpath,'$$ORIGIN' -Wl,--no-as-needed -l:libgo_shared.so
# The one workload that is made of more: a file system that stops answering.
$(OUT)/workloads/fuse_server: $(OUT)/tests/workloads/fuse_server.o $(OUT)/tests/unit/fuse_server.o
	$(call say,LINK,$@)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^
workload_source = tests/workloads/$(or $(WORKLOAD_SOURCE_$(1)),$(1).c)
$(OUT)/workloads/%: $$(call workload_source,$$*) tests/workloads/workload.h
	$(call say,WORKLOAD,$@)mkdir -p $(@D)
	$(Q)$(or $(WORKLOAD_CC_$*),/usr/bin/gcc) $(filter-out $(if $(filter %.cc,$<),-Wmissing-prototypes), \
		$(WORKLOAD_CFLAGS)) $(WORKLOAD_FLAGS_$*) -o $@ $<

# what the agent hears of processes and files
UNIT += event procmaps rights sideband reader reader_cgroup readerclient
READER_OBJS := $(call obj,agent,reader reader_open reader_scan reader_cgroup reader_box procmaps perfring sideband refusal rights cpulist event) \
	$(OUT)/symbolizer/msg.o $(BASE_OBJS)
TEST_OBJS_event := $(READER_OBJS) $(OUT)/agent/event_log.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_event := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_procmaps := $(OUT)/agent/procmaps.o
TEST_OBJS_rights := $(OUT)/agent/rights.o $(BASE_OBJS)
TEST_OBJS_sideband := $(OUT)/tests/unit/cpu_fixture.o $(call obj,agent,sideband perfring refusal rights cpulist) $(BASE_OBJS)
TEST_OBJS_reader := $(READER_OBJS) $(OUT)/tests/unit/reader_fixture.o
TEST_OBJS_reader_cgroup := $(call obj,agent,readerclient child) $(TEST_OBJS_reader)
TEST_OBJS_readerclient := $(call obj,agent,readerclient child) $(READER_OBJS) $(OUT)/tests/unit/fuse_server.o

UNIT += announce
TEST_OBJS_announce := $(OUT)/agent/announce.o $(OUT)/base/clock.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_announce := $(ALLOC_FAIL_LDFLAGS)

# agent: from events to batches, and the children
UNIT += lessons pipeline_learn
TEST_OBJS_lessons := $(OUT)/agent/learn.o
UNIT += procs queue aggregate batch window pending pipeline pipeline_life pipeline_labels pipeline_taps pipeline_jit child symclient kallsyms command
TEST_OBJS_procs := $(call obj,agent,procs maps files rows) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_procs := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_queue := $(call obj,agent,queue) $(OUT)/base/clock.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_queue := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_aggregate := $(UNWIND_OBJS) $(call obj,agent,aggregate procs) $(OUT)/base/clock.o $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_aggregate := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_batch := $(OUT)/agent/batch.o $(EXPORT_MSG_OBJS) $(BASE_OBJS) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_batch := $(ALLOC_FAIL_LDFLAGS)
PIPELINE_OBJS := $(UNWIND_OBJS) $(call obj,agent,procs queue sample asks aggregate window batch pipeline pipeline_world pipeline_samples \
	pending learn pipeline_learn pipeline_go pipeline_jit pipeline_labels pipeline_windows \
	event event_log) \
	$(OUT)/symbolizer/msg.o $(EXPORT_MSG_OBJS) $(BASE_OBJS)
TEST_OBJS_window := $(PIPELINE_OBJS)
TEST_OBJS_pipeline := $(PIPELINE_OBJS) $(call obj,tests/unit,pipeline_fixture rows_fixture)
TEST_OBJS_pipeline_learn := $(TEST_OBJS_pipeline)
TEST_OBJS_pipeline_life := $(TEST_OBJS_pipeline)
TEST_OBJS_pipeline_labels := $(TEST_OBJS_pipeline)
TEST_OBJS_pipeline_taps := $(TEST_OBJS_pipeline)
TEST_OBJS_pipeline_jit := $(TEST_OBJS_pipeline)
TEST_OBJS_pending := $(call obj,agent,pending procs maps files rows) $(ALLOC_FAIL_OBJ)
TEST_LDFLAGS_pending := $(ALLOC_FAIL_LDFLAGS)
TEST_OBJS_child := $(call obj,agent,child) $(OUT)/tests/unit/log_capture.o $(BASE_OBJS)
TEST_OBJS_symclient := $(call obj,agent,child symclient) $(OUT)/symbolizer/msg.o $(BASE_OBJS)
TEST_OBJS_timeline := $(OUT)/agent/timeline.o $(OUT)/base/clock.o
TEST_OBJS_place := $(OUT)/agent/place.o $(BASE_OBJS)
TEST_OBJS_expclient := $(call obj,agent,expclient ledger consignment child) $(OUT)/tests/unit/log_capture.o $(EXPORT_MSG_OBJS) $(BASE_OBJS)
UNIT += timeline place expclient
TEST_OBJS_kallsyms := $(OUT)/agent/kallsyms.o $(BASE_OBJS)
TEST_OBJS_command := $(OUT)/agent/command.o $(BASE_OBJS)

# the BPF program and what loads it: root, or CAP_BPF and CAP_PERFMON
UNIT += cpulist sample sampler learn
SAMPLER_OBJS := $(call obj,agent,sampler sigframe_x86_64 features refusal rights cpulist sideband perfring) $(BASE_OBJS)
TEST_OBJS_sample := $(SAMPLER_OBJS) $(OUT)/tests/unit/sampler_fixture.o
TEST_LIBS_sample := -lbpf -pthread
TEST_OBJS_sampler := $(TEST_OBJS_sample) $(OUT)/tests/unit/cpu_fixture.o
TEST_LIBS_sampler := -lbpf -lm
TEST_OBJS_learn := $(TEST_OBJS_sample)
TEST_LIBS_learn := -lbpf
TEST_OBJS_cpulist := $(OUT)/agent/cpulist.o
UNIT += features
TEST_OBJS_features := $(filter-out %/sampler.o,$(SAMPLER_OBJS))
TEST_LIBS_features := -lbpf

# The engine with all of it: this program is the reader, the symbolizer is the program itself.
UNIT += engine
ENGINE_OBJS := $(call obj,agent,engine engine_programs announce symclient debugfiles kallsyms readerclient child)
TEST_OBJS_engine = $(sort $(ENGINE_OBJS) $(SAMPLER_OBJS) $(READER_OBJS) $(PIPELINE_OBJS))
TEST_LIBS_engine := -lbpf
$(OUT)/tests/unit/test_engine: | $(BIN)/flamed-symbolizer
$(OUT)/tests/unit/test_engine.o: CPPFLAGS += -DSYMBOLIZER_PATH='"$(BIN)/flamed-symbolizer"'

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

# ---- other kernels, in an emulator: `make kernels` prints a table and writes docs/kernels.md ---------------

KERNELS := 5.10 6.1 6.12 6.1-rt 6.12-rt
KERNELS_CHECKED := 5.10 6.1
KERNELS_DIR := build/kernels
KERNELS_ENV = E2E_KERNELS='$(abspath $(KERNELS_DIR))' KERNELS_HELPERS='$(abspath $(OUT))/tests/kernels'

KERNEL_HELPERS := store bpf_facts
KERNEL_HELPER_PROGRAMS = $(addprefix $(OUT)/tests/kernels/,$(KERNEL_HELPERS))
KERNEL_HELPER_LIBS_bpf_facts := -lbpf
$(KERNEL_HELPER_PROGRAMS): $(OUT)/tests/kernels/%: $(OUT)/tests/kernels/%.o
	$(call say,LINK,$@)mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(KERNEL_HELPER_LIBS_$*)

# KERNELS='6.1' boots only these. Needs no rights: neither the packages are installed nor KVM is used.
.PHONY: kernels kernels-built
kernels: deps-check
	@$(MAKE) --no-print-directory -j$(shell nproc) kernels-built
kernels-built: all workloads $$(KERNEL_HELPER_PROGRAMS)
	@tests/kernels/packages.py $(KERNELS_DIR) $(KERNELS)
	@env E2E_BIN='$(abspath $(BIN))' E2E_WORKLOADS='$(abspath $(OUT))/workloads' $(KERNELS_ENV) \
		tests/kernels/run.py $(if $(filter command line,$(origin KERNELS)),,--write docs/kernels.md) \
		$(KERNELS_DIR) $(KERNELS)

# ---- recordings for tests/e2e/test_golden.py, made anew: after a change of the log's or a message's format ----

.PHONY: golden golden-built
golden: deps-check
	@$(MAKE) --no-print-directory -j$(shell nproc) golden-built
golden-built: all workloads $$(KERNEL_HELPER_PROGRAMS)
	@tests/kernels/packages.py $(KERNELS_DIR) 6.1
	@env E2E_BIN='$(abspath $(BIN))' E2E_WORKLOADS='$(abspath $(OUT))/workloads' $(KERNELS_ENV) \
		tests/golden/golden.py $(KERNELS_DIR)

# ---- fuzz targets of the agent and the exporter ----------------------------------------------------

FUZZ += msg_exporter sideband procmaps eventlog unwind replay
FUZZ_OBJS_replay = $(PIPELINE_OBJS)
FUZZ_OBJS_msg_exporter := $(EXPORT_PROFILE_OBJS) $(call obj,tests/unit,pprof_check)
FUZZ_LIBS_msg_exporter := -lprotobuf-c -lz
FUZZ += cgroup
FUZZ_OBJS_cgroup := $(call obj,exporter,cgroup labels utf8) $(OUT)/config/value.o $(OUT)/base/buf.o
FUZZ_OBJS_sideband := $(call obj,agent,sideband perfring refusal rights cpulist) $(BASE_OBJS)
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
# copy their own stack, the sanitizer's red zones with it, or are about what the kernel copies or how much memory it takes.
NOT_SANITIZED := symbolizer_sandbox exporter_sandbox selfunwind sample sampler learn api_bounds
SANITIZED = $(filter-out $(addprefix %/test_,$(NOT_SANITIZED)),$(UNIT_PROGRAMS)) $(FUZZ_REPLAYS)

.PHONY: check check-built sanitized
check: deps-check
	@$(MAKE) --no-print-directory -j$(shell nproc) check-built
check-built: all workloads $$(UNIT_PROGRAMS) $$(FUZZ_REPLAYS) $$(KERNEL_HELPER_PROGRAMS)
	@tests/kernels/packages.py $(KERNELS_DIR) $(KERNELS_CHECKED)
	@$(MAKE) --no-print-directory MODE=asan sanitized
	@mkdir -p $(OUT)/cppcheck # so that it is ours, not root's
	@$(AS_ROOT) env E2E_BIN='$(abspath $(BIN))' E2E_WORKLOADS='$(abspath $(OUT))/workloads' $(KERNELS_ENV) \
		tests/e2e/run.py $(TESTS) --unit tests/lint/run.sh $(UNIT_PROGRAMS) $(FUZZ_REPLAYS) \
		$(subst $(OUT)/,build/asan/,$(SANITIZED))
sanitized: $$(SANITIZED)
	@:

# Programs too large or too special for `check`; ACCURACY_ARGS='openssl java' runs only rows with these words.
# PYROSCOPE=/path/to/pyroscope: also against a real server (docs/pyroscope.md).
.PHONY: accuracy accuracy-built
accuracy: deps-check
	@tests/deps.sh $(DEPS_ACCURACY)
	@$(MAKE) --no-print-directory -j$(shell nproc) accuracy-built
accuracy-built: all workloads
	@$(AS_ROOT) env E2E_BIN='$(abspath $(BIN))' E2E_WORKLOADS='$(abspath $(OUT))/workloads' \
		tests/e2e/accuracy.py $(or $(ACCURACY_ARGS),--write docs/accuracy.md)
	@$(AS_ROOT) env E2E_BIN='$(abspath $(BIN))' E2E_WORKLOADS='$(abspath $(OUT))/workloads' \
		PYROSCOPE='$(PYROSCOPE)' tests/e2e/real_pyroscope.py || [ $$? = 77 ]
