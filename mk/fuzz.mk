# Fuzzing. A target is fuzz/*/NAME_fuzz.c with LLVMFuzzerTestOneInput, its seeds are in
# fuzz/corpus/NAME/ (most by tools/make_fuzz_corpus.py); nothing else has to be said about it.
#
#     make -j2 fuzz TIME=60      each target for TIME seconds, two at once (clang 14 or later)
#     make fuzz-NAME TIME=600    one target
#     ... SEED=1 RUNS=20000      the same mutations each time, as CI has them: what a change breaks
#                                is found there, and what others left by runs without it
#     make fuzz-build            builds them all
#     make fuzz-replay           all seeds once, then with failing allocations (any compiler)
#     make mutate N=20000        mutated files of every kind through whole commands

TIME ?= 60
FUZZ_SRC   := $(wildcard fuzz/*/*_fuzz.c)
FUZZ_NAMES := $(patsubst %_fuzz.c,%,$(notdir $(FUZZ_SRC)))
FUZZ_BUILD := $(BUILD)/fuzz
FUZZ_SANITIZE := address,undefined,float-cast-overflow
FUZZ_SUPPORT := fuzz/support.c fuzz/carriers.c tests/support/tiny_model.c $(SERVE_PLAIN) \
                $(filter-out apps/agent/mcp/mcp_http.c apps/agent/mcp/mcp_pipe.c,$(AGENT_SRC)) $(HUB_PLAIN)
FUZZ_REPLAYS := $(FUZZ_NAMES:%=$(BUILD)/fuzz/%_replay)

.PHONY: fuzz fuzz-replay $(FUZZ_NAMES:%=fuzz-%)
.SECONDARY: $(call obj,$(FUZZ_SRC) fuzz/replay.c $(FUZZ_SUPPORT))

fuzz: $(FUZZ_NAMES:%=fuzz-%) ## fuzz every reader for TIME=60 seconds each

fuzz_name = $(patsubst %_fuzz.c,%,$(notdir $(1)))
$(foreach s,$(FUZZ_SRC),$(eval $(FUZZ_BUILD)/$(call fuzz_name,$(s))_replay: $(call obj,$(s))))
$(FUZZ_REPLAYS): $(call obj,fuzz/replay.c $(FUZZ_SUPPORT)) $(BUILD)/libtern.a
	@mkdir -p $(@D)
	@echo "  link  $@"
	$(Q)$(CC_LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS)

fuzz-replay: $(FUZZ_REPLAYS) ## run the seeds of all fuzz targets, with failing allocations
	@for name in $(FUZZ_NAMES); do $(FUZZ_BUILD)/$${name}_replay fuzz/corpus/$$name || exit 1; done

# The library once more, instrumented. The kernels are only watched for stray accesses and not
# optimized: vector code with every check takes clang minutes a file, and `make asan` has them all.
FUZZ_CC ?= $(shell command -v clang-14 || echo clang)
FUZZ_FLAGS := -fsanitize=fuzzer-no-link,$(FUZZ_SANITIZE) -fno-sanitize-recover=undefined,float-cast-overflow
ifdef FUZZ_LIBRARY
$(BUILD)/obj/src/kernels/cpu/%.o: ALL_CFLAGS += -O0 -fno-sanitize=fuzzer-no-link,undefined,float-cast-overflow
endif
.PHONY: fuzz-library
fuzz-library:
	@$(MAKE) --no-print-directory BUILD=$(FUZZ_BUILD) CC=$(FUZZ_CC) OPT=-O1 FUZZ_LIBRARY=1 \
	  EXTRA_CFLAGS="$(FUZZ_FLAGS)" $(FUZZ_BUILD)/libtern.a $(FUZZ_SUPPORT:%.c=$(FUZZ_BUILD)/obj/%.o) \
	  $(FUZZ_SRC:%.c=$(FUZZ_BUILD)/obj/%.o)

.PHONY: fuzz-build $(FUZZ_NAMES:%=fuzz-link-%)
fuzz-build: $(FUZZ_NAMES:%=fuzz-link-%) ## build every fuzz target (clang)
$(FUZZ_NAMES:%=fuzz-link-%): fuzz-link-%: fuzz-library
	@echo "  link  $(FUZZ_BUILD)/$*_fuzz"
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer,$(FUZZ_SANITIZE) -pthread -o $(FUZZ_BUILD)/$*_fuzz \
	  $(patsubst %.c,$(FUZZ_BUILD)/obj/%.o,$(filter %/$*_fuzz.c,$(FUZZ_SRC))) $(FUZZ_SUPPORT:%.c=$(FUZZ_BUILD)/obj/%.o) \
	  $(FUZZ_BUILD)/libtern.a $(LIBS)

# libFuzzer's corpus and output stay in the build folder; a finding is the file NAME-crash-... (or
# -timeout-, -leak-, -oom-) there.
$(FUZZ_NAMES:%=fuzz-%): fuzz-%: fuzz-link-%
	@mkdir -p $(FUZZ_BUILD)/corpus/$*
	@$(FUZZ_BUILD)/$*_fuzz -max_total_time=$(TIME) $(if $(SEED),-seed=$(SEED)) $(if $(RUNS),-runs=$(RUNS)) -timeout=20 -rss_limit_mb=2048 \
	  -artifact_prefix=$(FUZZ_BUILD)/$*- -print_final_stats=1 \
	  $(FUZZ_BUILD)/corpus/$* fuzz/corpus/$* >$(FUZZ_BUILD)/$*.log 2>&1 || \
	  { tail -n 60 $(FUZZ_BUILD)/$*.log; exit 1; }
	@echo "  fuzz  $*: $$(sed -n 's/^Done \(.*\)/\1/p' $(FUZZ_BUILD)/$*.log), nothing found"

# Mutated files of every kind through whole commands, in the build of `make asan`: see tools/mutate/mutate.c.
N    ?= 2000
SEED ?= 1
MUTATE_JOBS ?= $(shell nproc)
$(BUILD)/mutate: $(call obj,tools/mutate/mutate.c tools/mutate/mutate_kinds.c tests/support/tiny_model.c) $(BUILD)/libtern.a
	@echo "  link  $@"
	$(Q)$(CC_LINK) -o $@ $^ $(LIBS)
.PHONY: mutate
mutate: ## give N=2000 mutated files of every kind to all their readers, with sanitizers
	$(MAKE) BUILD=build/asan OPT=-O1 EXTRA_CFLAGS="$(ASAN_FLAGS)" build/asan/mutate
	build/asan/mutate -n $(N) -s $(SEED) -j $(MUTATE_JOBS)
