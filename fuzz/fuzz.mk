# Fuzzing. A target is fuzz/NAME_fuzz.c with LLVMFuzzerTestOneInput, its seeds are in
# fuzz/corpus/NAME/; nothing else has to be said about it.
#
#     make fuzz TIME=60          each target for so many seconds (clang, address and undefined)
#     make fuzz-NAME TIME=600    one target
#     make fuzz-replay           all seeds once, then with failing allocations (any compiler)

TIME ?= 60
FUZZ_NAMES := $(patsubst fuzz/%_fuzz.c,%,$(wildcard fuzz/*_fuzz.c))
FUZZ_BUILD := $(BUILD)/fuzz
FUZZ_SANITIZE := address,undefined,float-cast-overflow
FUZZ_SUPPORT := fuzz/support.c tests/tiny_model.c
FUZZ_REPLAYS := $(FUZZ_NAMES:%=$(BUILD)/fuzz/%_replay)

.PHONY: fuzz fuzz-replay $(FUZZ_NAMES:%=fuzz-%)
.SECONDARY: $(FUZZ_NAMES:%=$(BUILD)/obj/fuzz/%_fuzz.o) $(call obj,fuzz/replay.c $(FUZZ_SUPPORT))

fuzz: $(FUZZ_NAMES:%=fuzz-%) ## fuzz every reader for TIME=60 seconds each

$(FUZZ_BUILD)/%_replay: $(BUILD)/obj/fuzz/%_fuzz.o $(call obj,fuzz/replay.c $(FUZZ_SUPPORT)) $(BUILD)/libtern.a
	@mkdir -p $(@D)
	@echo "  link  $@"
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS)

fuzz-replay: $(FUZZ_REPLAYS) ## run the seeds of all fuzz targets, with failing allocations
	@for name in $(FUZZ_NAMES); do $(FUZZ_BUILD)/$${name}_replay fuzz/corpus/$$name || exit 1; done

# The library once more, instrumented; what libFuzzer finds interesting stays in the build folder.
.PHONY: fuzz-library
fuzz-library:
	@$(MAKE) --no-print-directory BUILD=$(FUZZ_BUILD) CC=clang OPT=-O1 \
	  EXTRA_CFLAGS="-fsanitize=fuzzer-no-link,$(FUZZ_SANITIZE) -fno-sanitize-recover=undefined" \
	  $(FUZZ_BUILD)/libtern.a

$(FUZZ_NAMES:%=fuzz-%): fuzz-%: fuzz-library
	@mkdir -p $(FUZZ_BUILD)/corpus/$*
	clang $(filter-out $(OPT),$(ALL_CFLAGS)) -O1 -fsanitize=fuzzer,$(FUZZ_SANITIZE) \
	  -fno-sanitize-recover=undefined -o $(FUZZ_BUILD)/$*_fuzz fuzz/$*_fuzz.c \
	  $(FUZZ_BUILD)/libtern.a $(LIBS)
	$(FUZZ_BUILD)/$*_fuzz -max_total_time=$(TIME) -timeout=10 -rss_limit_mb=2048 \
	  -artifact_prefix=$(FUZZ_BUILD)/$*- -print_final_stats=1 \
	  $(FUZZ_BUILD)/corpus/$* fuzz/corpus/$*
