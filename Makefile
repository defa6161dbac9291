# tern: `make` builds build/tern and the libraries, `make help` lists the rest, V=1 shows commands.
# No configure step; every source is found by wildcard. As many jobs as there are cores, unless -j says
# otherwise. This file says what tern is made of; mk/ has what else can be made:
#
#     config.mk   packages, compiler, flags, the parts that tern can be built without
#     build.mk    how a file is made again when its command changes; stubs of libraries
#     test.mk     tests, sanitizers, lint, oracles    kernels.mk  kernels alone, also for ARM
#     bench.mk    programs that measure               fuzz.mk     fuzzing
#     install.mk  installation                        serve.mk    the server's page and its clients' tests
#     webgpu.mk   shaders, a WebGPU library           web.mk, pages.mk  browsers
#     ports.mk    Windows, WebAssembly   dist.mk  programs for other Linux machines   python.mk  the Python package
#     recipes.mk  the models that the repository carries
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
# Of the library for programs that are linked with it: see tern_abi_version().
ABI     := $(shell sed -n 's/^.define TERN_ABI_VERSION \([0-9]*\).*/\1/p' include/tern.h)

.DEFAULT_GOAL := all
include mk/config.mk

# ---- What tern is made of -------------------------------------------------------------------------

# What of the server knows of neither libevent nor OpenSSL is there, tested and fuzzed everywhere:
# `tern mcp` is made of it.
SERVE_LOOP  := apps/serve/connection.c apps/serve/listen.c apps/serve/loop.c
SERVE_PLAIN := $(filter-out $(SERVE_LOOP),$(wildcard apps/serve/*.c apps/serve/*/*.c apps/serve/*/*/*.c)) $(wildcard apps/mcp/*.c)
ifeq ($(LIBEVENT),1)
SERVE_NEEDS := $(shell $(PKG_CONFIG) --libs-only-L --libs-only-l libevent_openssl libevent_core openssl | sed 's/-levent //')
SERVE_LIBS  := $(if $(LAZY),,$(SERVE_NEEDS))
endif

HUB_SRC := $(wildcard apps/hub/*.c) $(wildcard apps/load/*.c)
# What of the hub knows names, plans and files, but no network: the server needs it.
HUB_PLAIN := $(addprefix apps/hub/hub_,blob.c digest.c facts.c name.c plan.c store.c)
# What `tern agent` is made of, but for the loop, which is the library's.
AGENT_SRC := $(wildcard apps/agent/*.c apps/agent/*/*.c)
ifeq ($(LIBCURL),1)
HUB_NEEDS := $(call libs_of,pull)
HUB_LIBS  := $(if $(LAZY),,$(HUB_NEEDS))
endif

isa_files    = $(foreach i,$(1),$(wildcard src/kernels/cpu/*_$(i).c src/kernels/cpu/*/*_$(i).c))
TEST_PATTERN := %_test.c %_check.c
LIB_SRC  := $(filter-out $(TEST_PATTERN) $(STORE_LEFT_OUT) $(MEDIA_LEFT_OUT) $(NOT_ASKED:.c=_none.c) $(call isa_files,$(filter-out $(ISAS),$(ALL_ISAS))),\
            $(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c src/*/*/*/*/*.c))
TEST_SRC := $(filter $(TEST_PATTERN),$(filter-out $(if $(filter images,$(PARTS_OUT)),tests/library/media/image_test.c) $(if $(filter sounds,$(PARTS_OUT)),tests/library/media/sound_test.c),$(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c src/*/*/*/*/*.c tests/*.c tests/*/*.c tests/*/*/*.c))) \
            tests/support/harness.c tests/support/harness_files.c tests/support/blobs.c tests/support/tiny_model.c tests/support/real_shapes.c tests/support/closeness.c tests/support/oracle_folders.c tests/library/models/goldens.c tests/library/models/families_fixture.c tests/library/convert/keyed_model.c tests/library/group/group_fixture.c tests/library/webgpu/gpu_fixture.c tests/library/media/image_tokens_fixture.c tests/support/grammar_data.c tests/wasm/unicode_web.c \
            apps/web/web_args.c $(SERVE_PLAIN) $(HUB_SRC) $(AGENT_SRC)
EDIT_CALLER  := apps/cli/console/line$(if $(WINDOWS),_windows).c
# On Windows the engine's tests, but for those of signals, processes and folders as POSIX has them.
ifneq ($(WINDOWS),)
POSIX_TESTS := $(shell grep -lE "<(signal|dirent|fcntl|poll|glob|sys/(wait|socket|mman))\.h>|\b(fork|mkdir|mkfifo|symlink|learnt_fixture|lstat|utimensat|posix_memalign|aligned_alloc)\b" $(TEST_SRC))
TEST_SRC := $(filter-out apps/% tests/library/agent_tools_test.c tests/serve/% tests/agent/% tests/cli/% tests/wasm/% tests/library/webgpu/% src/kernels/webgpu/% tests/support/harness.c $(POSIX_TESTS),$(TEST_SRC)) tests/plain/plain_harness.c tests/plain/no_gpu.c
endif
CLI_SRC  := $(filter-out $(filter-out $(EDIT_CALLER),apps/cli/console/line.c apps/cli/console/line_windows.c),$(wildcard apps/system/*.c apps/cli/*.c apps/cli/*/*.c)) $(HUB_SRC) $(AGENT_SRC) $(SERVE_PLAIN) $(if $(SERVE_NEEDS),$(wildcard $(SERVE_LOOP)))

LIB_OBJ  := $(call obj,$(LIB_SRC)) $(call lazy_obj,sounds,$(SOUND_LIBS)) $(call lazy_obj,images,$(IMAGE_LIBS))
TEST_OBJ := $(call obj,$(TEST_SRC)) $(call lazy_obj,curl,$(HUB_NEEDS))
CLI_OBJ  := $(call obj,$(CLI_SRC)) $(call lazy_obj,curl,$(HUB_NEEDS)) $(call lazy_obj,serve,$(SERVE_NEEDS)) \
            $(call lazy_obj,edit,$(EDIT_LIBS))
SOUND_CALLER := src/media/sound_file.c
HUB_CALLERS  := apps/hub/hub_fetch.c apps/load/load.c apps/agent/mcp/mcp_http.c
$(call obj,$(SOUND_CALLER) $(IMAGE_SRC) $(HUB_CALLERS) $(SERVE_LOOP) $(EDIT_CALLER) tests/library/media/sound_test.c tests/library/media/image_test.c): ALL_CFLAGS += $(if $(LAZY),-DTERN_LAZY=1)
$(call obj,apps/cli/serve/cmd_serve.c): ALL_CFLAGS += $(if $(SERVE_NEEDS),-DTERN_SERVE=1)
$(call obj,$(HUB_CALLERS)): ALL_CFLAGS += $(if $(HUB_NEEDS),-DTERN_CURL=1 $(call cflags_of,pull))

PUBLIC := $(wildcard include/*.h)

.PHONY: all run clean help deps
all: deps $(BUILD)/tern$(EXE) $(BUILD)/libtern.a $(BUILD)/$(SHARED) ## build/tern and the libraries
	@$(if $(PARTS_OUT),$(say_parts),$(if $(filter-out all,$(MAKECMDGOALS)),:,echo "  $(BUILD)/tern has all its parts"))
run: all ## begin a story with the model that the repository carries
	$(BUILD)/tern run -m models/stories.gguf -p "Once upon a time" -n 200 --temp 0.7 --seed 3
deps:
	@CC="$(CC)" tools/install_deps.sh --check needed
clean: ## remove the build folder
	rm -rf $(BUILD)
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 16

include mk/build.mk
$(BUILD)/libtern.a: $(LIB_OBJ) FORCE
	$(call again,ar,$(AR) rcs $@ $(made_of))
# For installation: one object, in which only the public functions are visible. Tests link the
# archive above, where they find the others, too. Darwin's linker hides what is hidden.
OBJCOPY ?= $(if $(DARWIN),: ,objcopy)
$(BUILD)/public/libtern.a: $(LIB_OBJ) FORCE
	$(call again,ar,$(LD) -r -o $(@D)/tern.o $(made_of) && $(OBJCOPY) --localize-hidden $(@D)/tern.o && $(AR) rcs $@ $(@D)/tern.o)
$(BUILD)/$(SHARED): $(LIB_OBJ) $(if $(WINDOWS),$(BUILD)/gen/tern.def,$(if $(DARWIN),$(BUILD)/gen/darwin.map,mk/libtern.map)) FORCE
	$(call again,link,$(CC_SHARED) -o $@ $(made_of) $(LIBS))
$(BUILD)/tern$(EXE): $(CLI_OBJ) $(BUILD)/libtern.a $(if $(WINDOWS),$(BUILD)/obj/apps/system/windows.o) FORCE
	$(call again,link,$(CC_LINK) $(PIE) $(HARDEN_LINK) -o $@ $(made_of) $(LIBS) $(CLI_LIBS) $(SERVE_LIBS) $(HUB_LIBS))

# The command line for several machines: `mpirun -n 2 build/tern-mpi train ...`.
MPICC ?= mpicc
.PHONY: mpi
mpi: $(BUILD)/tern-mpi ## the command line with MPI, for training on several processes
$(BUILD)/tern-mpi: $(filter-out %/comm.o,$(CLI_OBJ)) apps/cli/make/comm.c $(BUILD)/libtern.a
	@command -v $(MPICC) >/dev/null || tools/install_deps.sh libopenmpi-dev openmpi-bin
	@echo "  link  $@"
	$(Q)OMPI_CC=$(CC) $(MPICC) $(ALL_CFLAGS) $(LDFLAGS) -DTERN_MPI=1 -o $@ $^ $(LIBS) $(CLI_LIBS) $(SERVE_LIBS) $(HUB_LIBS)

include $(addprefix mk/,test.mk bench.mk install.mk fuzz.mk kernels.mk serve.mk webgpu.mk ports.mk dist.mk python.mk web.mk pages.mk recipes.mk)
-include $(shell find $(BUILD)/obj -name '*.d' -o -name '*.was' 2>/dev/null) $(wildcard $(BUILD)/*.was $(BUILD)/*/*.was $(BUILD)/python/tern/*.was)
