# Tests, sanitizers, lint, and what tests compare with.

TEST_JOBS ?= $(shell nproc)
# Parts of names, or '!PART' of those that are left out: which tests of build/tern_tests `make test`, asan,
# tsan and test-unmapped run; nothing is all of them.
TESTS ?=
# Scripts that take the program (and a tiny model), one after the other, but for those that run beside them
# and those of other targets.
SCRIPT_TESTS := $(filter-out $(patsubst %,tests/%_test.sh,files header install make mpi programs web_build) \
                tests/agent_test.py tests/haproxy_test.py,$(wildcard tests/*_test.sh tests/*/*_test.sh tests/*_test.py tests/serve/*_test.py tests/serve/*/*_test.py))
.PHONY: test
test: all $(BUILD)/tern_tests $(BUILD)/tiny.gguf header-test install-test make-test python-test static-test fuzz-replay ## the tests that every change must pass
	tools/check_format.sh
	tools/check_parameters.sh
	@# What was skipped, and why, comes last; build/tests.log has a line for each test.
	$(BUILD)/tern_tests -v -j $(TEST_JOBS) $(TESTS) > $(BUILD)/tests.log & tests=$$!; bad=; \
	    tests/files_test.sh $(BUILD)/tern $(BUILD)/tiny.gguf & files=$$!; \
	    tests/agent_test.py $(BUILD)/tern >$(BUILD)/agent.log 2>&1 & agents=$$!; \
	    for script in $(SCRIPT_TESTS); do \
	        $$script $(BUILD)/tern $$(case $$script in *.sh) echo $(BUILD)/tiny.gguf ;; esac) || bad="$$bad $$script"; \
	    done; \
	    wait $$files || bad="$$bad tests/files_test.sh"; wait $$agents || bad="$$bad tests/agent_test.py"; tail -n 20 $(BUILD)/agent.log; \
	    wait $$tests || bad="$$bad tern_tests"; grep -vE '^(ok|skipped) ' $(BUILD)/tests.log; \
	    [ -z "$$bad" ] || { echo "failed:$$bad"; exit 1; }

.PHONY: test-unmapped
test-unmapped: $(BUILD)/tern_tests ## the library's tests, as on a system that cannot map files
	TERN_TEST_UNMAPPED=1 $(BUILD)/tern_tests -j $(TEST_JOBS) $(TESTS)

KILLS ?= 300
.PHONY: test-kills
test-kills: all $(BUILD)/tiny.gguf ## commands that write, killed KILLS (300) times each: minutes
	tests/files_test.sh $(BUILD)/tern $(BUILD)/tiny.gguf $(KILLS)

MASK_PARTS ?= 64
.PHONY: test-masks
test-masks: $(BUILD)/tern_tests ## grammars' masks equal brute force over a million pairs of schema and prefix: hours
	seq 0 $$(($(MASK_PARTS) - 1)) | xargs -P $(TEST_JOBS) -I{} env TERN_TEST_MASKS={}/$(MASK_PARTS) \
	    $(BUILD)/tern_tests grammar_masks_of_pairs

ASAN_FLAGS := -fsanitize=address,undefined,float-cast-overflow -fno-omit-frame-pointer -fno-sanitize-recover=undefined,float-cast-overflow -fno-var-tracking
# Tests of numbers that shaders compute: no sanitizer sees into the GPU, and what the host does for them, it
# does for the tests of whole models, too.
SHADERS = '!gpu_token_' '!gpu_schedules_' '!gpu_wide_products' '!gpu_ternary_products' '!gpu_products_' '!gpu_groups_of_products'
.PHONY: print-asan-flags asan tsan lint
print-asan-flags:
	@echo '$(ASAN_FLAGS)'
asan: ## the tests under the address and undefined-behaviour sanitizers
	$(MAKE) BUILD=build/asan OPT=-O1 EXTRA_CFLAGS="$(ASAN_FLAGS)" build/asan/tern_tests programs-test
	build/asan/tern_tests -j $(TEST_JOBS) $(SHADERS) $(TESTS)
tsan: ## the tests under the thread sanitizer
	$(MAKE) BUILD=build/tsan OPT=-O1 EXTRA_CFLAGS="-fsanitize=thread" build/tsan/tern_tests programs-test
	build/tsan/tern_tests -j $(TEST_JOBS) $(TESTS)

lint: $(BUILD)/tern $(BUILD)/public/libtern.a python-types check-abi ## layers, systems, names of symbols, what the library may call, paths, format, mutants, docs
	tools/check_layers.sh $(BUILD)/libtern.a
	tools/check_os.sh
	tools/check_families.sh
	tools/check_paths.sh
	tools/check_symbols.sh $(BUILD)/libtern.a $(BUILD)/public/libtern.a
	tools/check_calls.sh $(BUILD)/libtern.a
	tools/check_format.sh
	tools/check_parameters.sh
	tools/check_words.sh
	tools/check_mutants.sh
	tools/check_left_out.sh
	tools/check_docs.sh $(BUILD)

.PHONY: mutants
mutants: $(BUILD)/tern_tests ## puts the faults of tests/mutants/list into a copy: the tests must find each (minutes)
	tools/mutants.sh

# Each file's warnings, which are errors; nothing is compiled.
CLANG ?= $(shell command -v clang-14 || echo clang)
.PHONY: check-clang warnings
check-clang: ## clang's warnings
	$(MAKE) BUILD=$(BUILD)/clang CC=$(CLANG) COMPILE="-fsyntax-only -Werror" warnings
warnings: $(sort $(call obj,$(LIB_SRC) $(TEST_SRC) $(CLI_SRC)))

PYTHON ?= python3
.PHONY: oracles gradients bits
oracles: ## tests/oracles again, tiny models with what numpy computes for them (needs numpy)
	for script in $(sort $(wildcard tests/reference/*oracles.py)) tests/reference/family_gradients.py; do $(PYTHON_TEST) $$script || exit 1; done
gradients: ## tests/reference/torch/gradients.gguf again, what tests compare gradients with (needs torch)
	$(PYTHON) tests/reference/torch/gradients.py

bits: $(BUILD)/tern_tests ## tests/bits.txt again: only where BitNet's and Llama's numbers are meant to change
	@rm -f $(BUILD)/bits.txt
	TERN_BITS_NEW=$(BUILD)/bits.txt $(BUILD)/tern_tests bits_of_
	mv $(BUILD)/bits.txt tests/bits.txt

.PHONY: make-test
make-test: deps
	tests/make_test.sh "$(MAKE)" "$(CC)"

.PHONY: test-mpi
test-mpi: all mpi ## training on two processes (needs OpenMPI)
	tests/mpi_test.sh $(BUILD)/tern $(BUILD)/tern-mpi

$(BUILD)/tern_tests$(EXE): $(TEST_OBJ) $(BUILD)/libtern.a $(RESOURCES) FORCE
	$(call again,link,$(CC_LINK) -o $@ $(made_of) $(LIBS) $(HUB_LIBS) $(IMAGE_LIBS) $(SOUND_LIBS))
$(BUILD)/make_tiny_model: $(call obj,tools/make_tiny_model.c tests/support/tiny_model.c tests/support/real_shapes.c) $(BUILD)/libtern.a
	$(link)
$(BUILD)/tiny.gguf: $(BUILD)/make_tiny_model
	$< $@

# What the modules for browsers have in the place of utf8proc (mk/web.mk), to be compared with it.
$(BUILD)/make_unicode_tables: $(call obj,tools/web/make_unicode_tables.c)
	$(link)
$(call obj,tools/web/make_unicode_tables.c): override COMPILE := -c
$(BUILD)/gen/unicode_tables.inc: $(BUILD)/make_unicode_tables
	@mkdir -p $(@D)
	@echo "  write $@"
	$(Q)$(RUN) $< > $@.tmp && mv $@.tmp $@
$(BUILD)/obj/tests/wasm/unicode_web.o: $(BUILD)/gen/unicode_tables.inc

$(BUILD)/2b.gguf: $(BUILD)/make_tiny_model
	$< $@ 2b

.PHONY: header-test programs-test
# Each public header compiles alone, in C and in C++.
header-test: $(BUILD)/public/libtern.a $(BUILD)/tiny.gguf programs-test
	tests/header_test.sh $(BUILD) $(BUILD)/tiny.gguf $(CC) $(CXX) $(LIBS)
# Programs on the headers alone, and the examples; with the flags of the library, which may be sanitizers'.
programs-test: $(BUILD)/libtern.a $(BUILD)/tiny.gguf
	tests/programs_test.sh $(BUILD) $(BUILD)/tiny.gguf $(CC) $(CXX) "$(EXTRA_CFLAGS)" $(LIBS)
