# tern: `make` builds build/tern and the libraries, `make help` lists the rest, V=1 shows commands.
# One Makefile, no configure step; every source is found by wildcard. As many jobs as there are cores,
# unless -j says otherwise.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif

BUILD   ?= build
ifeq ($(origin CC),default)
CC      := gcc
endif
AR      ?= ar
PREFIX  ?= /usr/local
OPT     ?= -O3
Q       := $(if $(V),,@)
VERSION := 0.1.0

# `make run` and `make test` install what is missing, before anything else is asked of this machine: they
# make a file that is included here, after which make begins again. Parts of tern that cannot be
# installed are left out; other targets only name what they need.
include tools/packages.mk
SETS_UP := $(filter run test asan tsan test-webgpu test-mpi,$(MAKECMDGOALS))
PACKAGES_WANTED := needed $(if $(filter-out run,$(SETS_UP)),tests) --also complete
ifneq ($(and $(SETS_UP),$(if $(MAKE_RESTARTS)$(findstring n,$(firstword -$(MAKEFLAGS))),,first)),)
ifneq ($(shell tools/install_deps.sh --check $(PACKAGES_WANTED) 2>&1),)
include $(BUILD)/set-up.mk
$(BUILD)/set-up.mk: FORCE
	@mkdir -p $(@D)
	@CC="$(CC)" tools/install_deps.sh $(PACKAGES_WANTED)
	@touch $@
endif
endif
.PHONY: FORCE
FORCE:

MACHINE := $(shell $(CC) -dumpmachine 2>/dev/null | cut -d- -f1)

# -ffp-contract=off: a multiply and an add are fused only where the code says so (fma), so that
# every instruction set gives the same bits.
CFLAGS   ?= -g
WARNINGS := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
# Neither files nor this code are trusted: array overflows end the process, addresses are random,
# tables of functions read-only. HARDEN= builds without.
HARDEN   ?= -fstack-protector-strong $(if $(findstring sanitize,$(EXTRA_CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
HARDEN_LINK ?= -Wl,-z,relro,-z,now
PIE      ?= -pie
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 $(OPT) $(CFLAGS) $(WARNINGS) $(HARDEN) -ffp-contract=off \
              -fno-math-errno -fvisibility=hidden -fPIC -pthread -Iinclude -Isrc -I. -I$(BUILD)/gen \
              $(EXTRA_CFLAGS)
LIBS     := -lpcre2-8 -lutf8proc -lm -ldl -pthread
EDIT_LIBS := -ledit

# Parts that tern can be built without. It then says so where one is asked for (src/store/store_none.c,
# src/media/image_none.c, src/media/sound_none.c); ZLIB= and the like leave them out on purpose.
there = $(shell pkg-config --exists $(MODULES_$(1)) 2>/dev/null && echo 1)
cflags_of = $(shell pkg-config --cflags $(MODULES_$(1)))
libs_of   = $(shell pkg-config --libs $(MODULES_$(1)))
SWITCH_gz := ZLIB
SWITCH_memory := SQLITE
SWITCH_images := IMAGES
SWITCH_sounds := SOUNDS
SWITCH_serve := LIBEVENT
SWITCH_pull := LIBCURL
define part_rule
$(SWITCH_$(1)) ?= $$(call there,$(1))
$(SWITCH_$(1)) := $$($(SWITCH_$(1)))
endef
$(foreach p,$(PARTS),$(eval $(call part_rule,$(p))))
# Libraries of which only some commands know are loaded by them (src/base/lazy.h), not at every start.
# LAZY= links them, and so does a static program.
LAZY ?= $(if $(or $(filter-out x86_64 aarch64,$(MACHINE)),$(findstring -static,$(CFLAGS) $(EXTRA_CFLAGS) $(PIE) $(HARDEN_LINK))),,1)
LAZY := $(LAZY)
CLI_LIBS := $(if $(LAZY),,$(EDIT_LIBS))
# The stubs of a group of libraries, where it is built in: $(1): name, $(2): the libraries
lazy_obj = $(if $(and $(LAZY),$(2)),$(BUILD)/obj/lazy_$(1).o)

PARTS_IN  := $(foreach p,$(PARTS),$(if $(filter 1,$($(SWITCH_$(p)))),$(p)))
PARTS_OUT := $(filter-out $(PARTS_IN),$(PARTS))

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
# Flags of some files alone: others need not be compiled again when a package comes.
STORE_SRC   := $(filter-out %_test.c %/store_none.c,$(wildcard src/store/*.c))
IMAGE_SRC := $(addprefix src/media/image_,jpeg.c png.c webp.c gif.c)
ifeq ($(ZLIB),1)
$(call obj,src/train/data/data_stream.c src/train/data/data_test.c fuzz/documents_fuzz.c apps/serve/long_body.c): ALL_CFLAGS += -DTERN_ZLIB=1 $(call cflags_of,gz)
LIBS += $(call libs_of,gz)
endif
ifeq ($(SQLITE),1)
$(call obj,$(STORE_SRC) tests/store_test.c): ALL_CFLAGS += -DTERN_SQLITE=1 $(call cflags_of,memory)
LIBS += $(call libs_of,memory)
STORE_LEFT_OUT := src/store/store_none.c
else
STORE_LEFT_OUT := $(STORE_SRC)
endif
ifeq ($(IMAGES),1)
$(call obj,$(IMAGE_SRC)): ALL_CFLAGS += $(call cflags_of,images)
IMAGE_LIBS := $(call libs_of,images)
LIBS += $(if $(LAZY),,$(IMAGE_LIBS))
MEDIA_LEFT_OUT := src/media/image_none.c
else
MEDIA_LEFT_OUT := $(IMAGE_SRC)
endif
ifeq ($(SOUNDS),1)
$(call obj,src/media/sound_file.c): ALL_CFLAGS += $(call cflags_of,sounds)
SOUND_LIBS := $(call libs_of,sounds)
LIBS += $(if $(LAZY),,$(SOUND_LIBS))
MEDIA_LEFT_OUT += src/media/sound_none.c
else
MEDIA_LEFT_OUT += src/media/sound_file.c
endif

# What of the server knows of neither libevent nor OpenSSL is there, tested and fuzzed everywhere:
# `tern mcp` is made of it.
SERVE_LOOP  := apps/serve/connection.c apps/serve/listen.c apps/serve/loop.c
SERVE_PLAIN := $(filter-out $(SERVE_LOOP),$(wildcard apps/serve/*.c)) $(wildcard apps/mcp/*.c)
ifeq ($(LIBEVENT),1)
SERVE_NEEDS := $(shell pkg-config --libs-only-L --libs-only-l libevent_core libevent_openssl openssl | sed 's/-levent //')
SERVE_LIBS  := $(if $(LAZY),,$(SERVE_NEEDS))
endif

HUB_SRC := $(wildcard apps/hub/*.c) $(wildcard apps/load/*.c)
# What `tern agent` is made of, but for the loop, which is the library's.
AGENT_SRC := $(wildcard apps/agent/*.c)
ifeq ($(LIBCURL),1)
HUB_NEEDS := $(call libs_of,pull)
HUB_LIBS  := $(if $(LAZY),,$(HUB_NEEDS))
endif

# Only files with an instruction set in their name are compiled for it, and only for their machine.
ISA_x86_64  := avx2 avx512 avx512bf16
ISA_aarch64 := neon dotprod
FLAGS_avx2    := -mavx2 -mfma -mf16c
FLAGS_avx512  := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512vbmi
FLAGS_avx512bf16 := $(FLAGS_avx512) -mavx512bf16
FLAGS_neon    :=
FLAGS_dotprod := -march=armv8.2-a+dotprod
ISAS     := $(ISA_$(MACHINE))
ALL_ISAS := avx2 avx512 avx512bf16 neon dotprod wasm

isa_files    = $(foreach i,$(1),$(wildcard src/kernels/cpu/*_$(i).c src/kernels/cpu/*/*_$(i).c))
TEST_PATTERN := %_test.c %_check.c
LIB_SRC  := $(filter-out $(TEST_PATTERN) $(STORE_LEFT_OUT) $(MEDIA_LEFT_OUT) $(call isa_files,$(filter-out $(ISAS),$(ALL_ISAS))),\
            $(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c))
TEST_SRC := $(filter $(TEST_PATTERN),$(filter-out $(if $(filter images,$(PARTS_OUT)),tests/image_test.c) $(if $(filter sounds,$(PARTS_OUT)),tests/sound_test.c),$(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c tests/*.c))) \
            tests/harness.c tests/blobs.c tests/tiny_model.c tests/real_shapes.c tests/closeness.c tests/goldens.c tests/gpu_fixture.c tests/image_tokens_fixture.c tests/grammar_data.c tests/unicode_web.c \
            apps/web/web_args.c $(SERVE_PLAIN) $(HUB_SRC) $(AGENT_SRC)
CLI_SRC  := $(wildcard apps/cli/*.c) $(HUB_SRC) $(AGENT_SRC) $(SERVE_PLAIN) $(if $(SERVE_NEEDS),$(wildcard $(SERVE_LOOP)))

LIB_OBJ  := $(call obj,$(LIB_SRC)) $(call lazy_obj,sounds,$(SOUND_LIBS)) $(call lazy_obj,images,$(IMAGE_LIBS))
TEST_OBJ := $(call obj,$(TEST_SRC)) $(call lazy_obj,curl,$(HUB_NEEDS))
CLI_OBJ  := $(call obj,$(CLI_SRC)) $(call lazy_obj,curl,$(HUB_NEEDS)) $(call lazy_obj,serve,$(SERVE_NEEDS)) \
            $(call lazy_obj,edit,$(EDIT_LIBS))
SOUND_CALLER := src/media/sound_file.c
HUB_CALLERS  := apps/hub/hub_fetch.c apps/load/load.c apps/agent/mcp_http.c
EDIT_CALLER  := apps/cli/line.c
$(call obj,$(SOUND_CALLER) $(IMAGE_SRC) $(HUB_CALLERS) $(SERVE_LOOP) $(EDIT_CALLER) tests/sound_test.c tests/image_test.c): ALL_CFLAGS += $(if $(LAZY),-DTERN_LAZY=1)
$(call obj,apps/cli/cmd_serve.c): ALL_CFLAGS += $(if $(SERVE_NEEDS),-DTERN_SERVE=1)
$(call obj,$(HUB_CALLERS)): ALL_CFLAGS += $(if $(HUB_NEEDS),-DTERN_CURL=1 $(call cflags_of,pull))

.DEFAULT_GOAL := all
.PHONY: all run test check bench asan tsan lint gradients oracles bits install uninstall clean help deps header-test

all: deps $(BUILD)/tern $(BUILD)/libtern.a $(BUILD)/libtern.so ## build/tern and the libraries
	@$(if $(PARTS_OUT),$(say_parts),$(if $(filter-out all,$(MAKECMDGOALS)),:,echo "  $(BUILD)/tern has all its parts"))
# What is in and what is left out, and which packages bring it.
define say_parts
echo; echo "  $(BUILD)/tern has no"; \
$(foreach p,$(PARTS_OUT),printf '    %-56s %s\n' "$(BRINGS_$(p))" "($(PACKAGES_$(p)))";) \
$(if $(PARTS_IN),echo "  and has"; $(foreach p,$(PARTS_IN),echo "    $(BRINGS_$(p))";)) \
echo "  \`tools/install_deps.sh complete\` installs the packages (Debian's names), and make adds what they bring."; echo
endef

# ---- Main jobs ----------------------------------------------------------------------------------

run: all ## begin a story with the model that the repository carries
	$(BUILD)/tern run -m models/stories.gguf -p "Once upon a time" -n 200 --temp 0.7 --seed 3

TEST_JOBS ?= $(shell nproc)
# Parts of names, or '!PART' of those that are left out: which tests of build/tern_tests `make test`, asan,
# tsan and test-unmapped run; nothing is all of them.
TESTS ?=
test: all $(BUILD)/tern_tests $(BUILD)/tiny.gguf header-test install-test make-test python-test static-test fuzz-replay ## the tests that every change must pass
	tools/check_format.sh
	@# What was skipped, and why, comes last; build/tests.log has a line for each test.
	$(BUILD)/tern_tests -v -j $(TEST_JOBS) $(TESTS) > $(BUILD)/tests.log & tests=$$!; \
	    tests/files_test.sh $(BUILD)/tern $(BUILD)/tiny.gguf & files=$$!; \
	    tests/agent_test.py $(BUILD)/tern >$(BUILD)/agent.log 2>&1 & agents=$$!; \
	    tests/cli_test.sh $(BUILD)/tern $(BUILD)/tiny.gguf; bad=$$?; \
	    tests/train_test.sh $(BUILD)/tern $(BUILD)/tiny.gguf || bad=1; \
	    tests/serve_test.py $(BUILD)/tern || bad=1; \
	    tests/serve_tools_test.py $(BUILD)/tern || bad=1; \
	    tests/systemd_test.py $(BUILD)/tern || bad=1; \
	    tests/serve_formats_test.py $(BUILD)/tern || bad=1; \
	    tests/serve_tokens_test.py $(BUILD)/tern || bad=1; \
	    tests/serve_sound_test.py $(BUILD)/tern || bad=1; \
	    tests/serve_image_test.py $(BUILD)/tern || bad=1; \
	    tests/serve_speech_test.py $(BUILD)/tern || bad=1; \
	    tests/mcp_serve_test.py $(BUILD)/tern || bad=1; \
	    tests/run_test.py $(BUILD)/tern || bad=1; \
	    tests/hub_test.py $(BUILD)/tern || bad=1; \
	    tests/load_test.py $(BUILD)/tern || bad=1; \
	    tests/memory_test.py $(BUILD)/tern || bad=1; \
	    wait $$files || bad=1; wait $$agents || bad=1; tail -n 20 $(BUILD)/agent.log; wait $$tests || bad=1; grep -vE '^(ok|skipped) ' $(BUILD)/tests.log; exit $$bad

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

MODEL ?= $(BUILD)/2b.gguf
bench: all $(MODEL) ## speed against the machine's limits; MODEL=file.gguf (else random weights of 2B-4T's shape)
	$(BUILD)/tern bench -m $(MODEL) -p 512 -n 128 -t 1,2 -r 5

ASAN_FLAGS := -fsanitize=address,undefined,float-cast-overflow -fno-omit-frame-pointer -fno-sanitize-recover=undefined,float-cast-overflow -fno-var-tracking
# Tests of numbers that shaders compute: no sanitizer sees into the GPU, and what the host does for them, it
# does for the tests of whole models, too.
SHADERS = '!gpu_token_' '!gpu_schedules_' '!gpu_wide_products' '!gpu_ternary_products' '!gpu_products_' '!gpu_groups_of_products'
.PHONY: print-asan-flags
print-asan-flags:
	@echo '$(ASAN_FLAGS)'
asan: ## the tests under the address and undefined-behaviour sanitizers
	$(MAKE) BUILD=build/asan OPT=-O1 EXTRA_CFLAGS="$(ASAN_FLAGS)" build/asan/tern_tests
	build/asan/tern_tests -j $(TEST_JOBS) $(SHADERS) $(TESTS)
tsan: ## the tests under the thread sanitizer
	$(MAKE) BUILD=build/tsan OPT=-O1 EXTRA_CFLAGS="-fsanitize=thread" build/tsan/tern_tests
	build/tsan/tern_tests -j $(TEST_JOBS) $(TESTS)

lint: $(BUILD)/tern $(BUILD)/public/libtern.a python-types ## layers, systems, names of symbols, what the library may call, paths, format, mutants, docs
	tools/check_layers.sh $(BUILD)/libtern.a
	tools/check_os.sh
	tools/check_families.sh
	tools/check_paths.sh
	tools/check_symbols.sh $(BUILD)/libtern.a $(BUILD)/public/libtern.a
	tools/check_calls.sh $(BUILD)/libtern.a
	tools/check_format.sh
	tools/check_words.sh
	tools/check_mutants.sh
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
oracles: ## tests/oracles again, tiny models with what numpy computes for them (needs numpy)
	$(PYTHON) tests/reference/oracles.py
	$(PYTHON) tests/reference/family_oracles.py
	$(PYTHON) tests/reference/mixed_oracles.py
	$(PYTHON) tests/reference/bitnet_embedding_oracles.py
	$(PYTHON) tests/reference/bert_oracles.py
	$(PYTHON) tests/reference/encoder_oracles.py
	$(PYTHON) tests/reference/vit_oracles.py
	$(PYTHON) tests/reference/moonshine_oracles.py
	$(PYTHON) tests/reference/moonshine_streaming_oracles.py
	$(PYTHON) tests/reference/whisper_oracles.py
	$(PYTHON) tests/reference/speech_oracles.py
	$(PYTHON) tests/reference/image_tokens_oracles.py
	$(PYTHON) tests/reference/deepstack_oracles.py
	$(PYTHON) tests/reference/gemma3_image_tokens_oracles.py
	$(PYTHON) tests/reference/lfm2vl_oracles.py
	$(PYTHON) tests/reference/family_gradients.py
gradients: ## tests/reference/gradients.gguf again, what tests compare gradients with (needs torch)
	$(PYTHON) tests/reference/gradients.py

bits: $(BUILD)/tern_tests ## tests/bits.txt again: only where BitNet's and Llama's numbers are meant to change
	@rm -f $(BUILD)/bits.txt
	TERN_BITS_NEW=$(BUILD)/bits.txt $(BUILD)/tern_tests bits_of_
	mv $(BUILD)/bits.txt tests/bits.txt

PUBLIC := $(wildcard include/*.h)
STRIP  ?= strip
TO     := $(DESTDIR)$(PREFIX)
SHELLS := bash zsh fish
# A service of systemd, where the server is built.
UNIT := $(if $(SERVE_NEEDS),lib/systemd/system/tern@.service)
completion_bash := share/bash-completion/completions/tern
completion_zsh  := share/zsh/site-functions/_tern
completion_fish := share/fish/vendor_completions.d/tern.fish
$(SHELLS:%=$(BUILD)/completions/%): $(BUILD)/completions/%: tools/completions.sh $(BUILD)/tern
	@mkdir -p $(@D)
	@echo "  shell $@"
	$(Q)tools/completions.sh $* $(BUILD)/tern >$@.tmp && mv $@.tmp $@

# What `tern chat stories` finds, and the drafts that lie beside it.
CARRIED := $(wildcard models/*.gguf) models/chain-buckets.bin
.PHONY: make-test
make-test: deps
	tests/make_test.sh "$(MAKE)" "$(CC)"

# Names may have spaces, which pkg-config needs escaped.
empty :=
pc_prefix = $(subst $(empty) ,\\ ,$(PREFIX))
install: all $(BUILD)/public/libtern.a $(SHELLS:%=$(BUILD)/completions/%) ## to PREFIX (/usr/local), under DESTDIR
	install -d "$(TO)/bin" "$(TO)/lib/pkgconfig" "$(TO)/include" "$(TO)/share/man/man1" "$(TO)/share/tern/models"
	install -m 755 $(BUILD)/tern "$(TO)/bin/tern"
	install -m 644 $(PUBLIC) "$(TO)/include/"
	install -m 644 $(BUILD)/public/libtern.a "$(TO)/lib/libtern.a"
	install -m 755 $(BUILD)/libtern.so "$(TO)/lib/libtern.so.$(VERSION)"
	$(STRIP) "$(TO)/bin/tern" "$(TO)/lib/libtern.so.$(VERSION)"
	$(STRIP) -g "$(TO)/lib/libtern.a"
	ln -sf libtern.so.$(VERSION) "$(TO)/lib/libtern.so.0"
	ln -sf libtern.so.0 "$(TO)/lib/libtern.so"
	sed -e 's|@PREFIX@|$(pc_prefix)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(LIBS)|' \
	    tools/tern.pc.in > "$(TO)/lib/pkgconfig/tern.pc"
	$(if $(UNIT),install -d "$(TO)/$(dir $(UNIT))" && sed -e 's|@PREFIX@|$(PREFIX)|' apps/serve/systemd/tern@.service > "$(TO)/$(UNIT)")
	install -m 644 docs/tern.1 "$(TO)/share/man/man1/tern.1"
	install -m 644 $(CARRIED) "$(TO)/share/tern/models/"
	$(foreach s,$(SHELLS),install -D -m 644 $(BUILD)/completions/$(s) "$(TO)/$(completion_$(s))" &&) true
uninstall: ## remove what install installed
	rm -f "$(TO)/bin/tern" $(PUBLIC:include/%="$(TO)/include/%") "$(TO)"/lib/libtern.* "$(TO)/lib/pkgconfig/tern.pc" \
	    "$(TO)/share/man/man1/tern.1" $(CARRIED:models/%="$(TO)/share/tern/models/%") $(if $(UNIT),"$(TO)/$(UNIT)") $(foreach s,$(SHELLS),"$(TO)/$(completion_$(s))")
	rmdir "$(TO)/share/tern/models" "$(TO)/share/tern" 2>/dev/null || true
.PHONY: install-test
install-test: all $(BUILD)/public/libtern.a $(SHELLS:%=$(BUILD)/completions/%)
	tests/install_test.sh "$(MAKE)" $(CC)

deps:
	@CC="$(CC)" tools/install_deps.sh --check needed
clean: ## remove the build folder
	rm -rf $(BUILD)
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 16

# ---- Files --------------------------------------------------------------------------------------

define isa_rule
$(BUILD)/obj/%_$(1).o: ALL_CFLAGS += $(FLAGS_$(1))
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))

# A file is made again when what it is made of is newer, and also when the command that makes it is
# another than last time: a package came or went, another compiler, other flags. The command is in
# FILE.was, which is read below; this rule runs it: $(call again,WORD FOR PEOPLE,COMMAND).
comma := ,
hash := \#
quoted = '$(subst ','\'',$(1))'
made_of = $(filter-out FORCE,$^)
differs = $(subst =$(strip $(1))=,,=$(strip $(2))=)
again = $(if $(or $(filter-out FORCE,$?),$(call differs,$(2),$(was.$@))),$(call make_it,$(1),$(2)))
define make_it
@mkdir -p $(@D) && rm -f $@ $@.was
@echo "  $(1)$(if $(filter cc,$(1)),    $<,$(if $(filter ar,$(1)),    $@,  $@))"
$(Q)$(2)
@printf 'was.%s := %s\n' $(call quoted,$@) $(call quoted,$(subst $(hash),$$(hash),$(subst $$,$$$$,$(strip $(2))))) >$@.was
endef

# Kernels may be compiled for speed where all else need not be.
KERNEL_OPT ?=
$(BUILD)/obj/src/kernels/cpu/%.o: ALL_CFLAGS += $(KERNEL_OPT)

# tools/mutants.sh: a file that is compiled for one trial.
ifneq ($(MUTATED),)
$(call obj,$(MUTATED)): ALL_CFLAGS += -O1
endif

# Objects depend on the installed packages only in order: a fresh machine gets them first.
COMPILE ?= -c
$(BUILD)/obj/%.o: %.c FORCE | deps
	$(call again,cc,$(CC) $(ALL_CFLAGS) -MMD -MP $(COMPILE) $< -o $@)
# Stubs of libraries that are loaded when they are needed: $(1): name, $(2): for people, $(3): the
# libraries, $(4): the objects that call them
define lazy_rule
$(BUILD)/gen/lazy_$(1).c: tools/lazy_stubs.sh $(call obj,$(4)) FORCE
	$$(call again,write,tools/lazy_stubs.sh $(1) '$(2)' '$(CC)' '$(3)' $(call obj,$(4)) >$$@)
$(BUILD)/obj/lazy_$(1).o: $(BUILD)/gen/lazy_$(1).c FORCE
	$$(call again,cc,$$(CC) $$(ALL_CFLAGS) -MMD -MP -c $$< -o $$@)
endef
ifneq ($(LAZY),)
$(eval $(call lazy_rule,sounds,libsndfile and soxr,$(SOUND_LIBS),$(SOUND_CALLER)))
$(eval $(call lazy_rule,images,the libraries of images,$(IMAGE_LIBS),$(IMAGE_SRC)))
$(eval $(call lazy_rule,edit,libedit,$(EDIT_LIBS),$(EDIT_CALLER)))
$(eval $(call lazy_rule,serve,libevent and OpenSSL,$(SERVE_NEEDS),$(SERVE_LOOP)))
$(eval $(call lazy_rule,curl,libcurl,$(HUB_NEEDS),$(HUB_CALLERS)))
endif
$(BUILD)/libtern.a: $(LIB_OBJ) FORCE
	$(call again,ar,$(AR) rcs $@ $(made_of))
# For installation: one object, in which only the public functions are visible. Tests link the
# archive above, where they find the others, too.
OBJCOPY ?= objcopy
$(BUILD)/public/libtern.a: $(LIB_OBJ) FORCE
	$(call again,ar,$(LD) -r -o $(@D)/tern.o $(made_of) && $(OBJCOPY) --localize-hidden $(@D)/tern.o && $(AR) rcs $@ $(@D)/tern.o)
$(BUILD)/libtern.so: $(LIB_OBJ) FORCE
	$(call again,link,$(CC) $(ALL_CFLAGS) -shared $(HARDEN_LINK) -Wl$(comma)-soname$(comma)libtern.so.0 -o $@ $(made_of) $(LIBS))
$(BUILD)/tern: $(CLI_OBJ) $(BUILD)/libtern.a FORCE
	$(call again,link,$(CC) $(ALL_CFLAGS) $(PIE) $(HARDEN_LINK) -o $@ $(made_of) $(LIBS) $(CLI_LIBS) $(SERVE_LIBS) $(HUB_LIBS))

# The command line for several machines: `mpirun -n 2 build/tern-mpi train ...`.
MPICC ?= mpicc
.PHONY: mpi test-mpi
test-mpi: all mpi ## training on two processes (needs OpenMPI)
	tests/mpi_test.sh $(BUILD)/tern $(BUILD)/tern-mpi
mpi: $(BUILD)/tern-mpi ## the command line with MPI, for training on several processes
$(BUILD)/tern-mpi: $(filter-out %/comm.o,$(CLI_OBJ)) apps/cli/comm.c $(BUILD)/libtern.a
	@command -v $(MPICC) >/dev/null || tools/install_deps.sh libopenmpi-dev openmpi-bin
	@echo "  link  $@"
	$(Q)OMPI_CC=$(CC) $(MPICC) $(ALL_CFLAGS) -DTERN_MPI=1 -o $@ $^ $(LIBS) $(CLI_LIBS) $(SERVE_LIBS) $(HUB_LIBS)

$(BUILD)/tern_tests: $(TEST_OBJ) $(BUILD)/libtern.a FORCE
	$(call again,link,$(CC) $(ALL_CFLAGS) -o $@ $(made_of) $(LIBS) $(HUB_LIBS) $(IMAGE_LIBS) $(SOUND_LIBS))
$(BUILD)/make_tiny_model: $(call obj,tools/make_tiny_model.c tests/tiny_model.c tests/real_shapes.c) $(BUILD)/libtern.a
	@echo "  link  $@"
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS)
$(BUILD)/tiny.gguf: $(BUILD)/make_tiny_model
	$< $@

# What the modules for browsers have in the place of utf8proc (web.mk), to be compared with it.
$(BUILD)/make_unicode_tables: $(call obj,tools/make_unicode_tables.c)
	@echo "  link  $@"
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS)
$(call obj,tools/make_unicode_tables.c): override COMPILE := -c
$(BUILD)/gen/unicode_tables.inc: $(BUILD)/make_unicode_tables
	@mkdir -p $(@D)
	@echo "  write $@"
	$(Q)$< > $@.tmp && mv $@.tmp $@
$(BUILD)/obj/tests/unicode_web.o: $(BUILD)/gen/unicode_tables.inc

$(BUILD)/2b.gguf: $(BUILD)/make_tiny_model
	$< $@ 2b

# Each public header compiles alone, in C and in C++; the examples are built against it.
header-test: $(BUILD)/public/libtern.a $(BUILD)/tiny.gguf
	tests/header_test.sh $(BUILD) $(BUILD)/tiny.gguf $(CC) $(CXX) $(LIBS)
	for name in hello many; do $(CC) -std=c11 -Wall -Wextra -Iinclude -o $(BUILD)/$$name examples/$$name.c \
	    $(BUILD)/public/libtern.a $(LIBS) || exit 1; done
	$(BUILD)/many $(BUILD)/tiny.gguf the and >$(BUILD)/many.log && test "$$(grep -c 'tokens\]' $(BUILD)/many.log)" = 2

-include fuzz/fuzz.mk kernels.mk memory.mk serve.mk webgpu.mk systems.mk bindings/python/python.mk web.mk web/pages.mk tests/web/web-tests.mk recipes/recipes.mk
-include $(shell find $(BUILD)/obj -name '*.d' -o -name '*.was' 2>/dev/null) $(wildcard $(BUILD)/*.was $(BUILD)/*/*.was $(BUILD)/python/tern/*.was)
