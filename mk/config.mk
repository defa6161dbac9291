# Packages, compiler, flags, and the parts that tern can be built without.

# `make run` and `make test` install what is missing, before anything else is asked of this machine: they
# make a file that is included here, after which make begins again. Parts of tern that cannot be
# installed are left out; other targets only name what they need.
include mk/packages.mk
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

TARGET  := $(shell $(CC) -dumpmachine 2>/dev/null)
MACHINE := $(patsubst arm64,aarch64,$(firstword $(subst -, ,$(TARGET))))
WINDOWS := $(if $(findstring mingw,$(TARGET)),1)
DARWIN  := $(if $(filter apple macos%,$(subst -, ,$(TARGET))),1)

# -ffp-contract=off: a multiply and an add are fused only where the code says so (fma), so that
# every instruction set gives the same bits.
CFLAGS   ?= -g
WARNINGS := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
# Neither files nor this code are trusted: array overflows end the process, addresses are random,
# tables of functions read-only. HARDEN= builds without.
HARDEN   ?= -fstack-protector-strong $(if $(findstring sanitize,$(EXTRA_CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
ifeq ($(WINDOWS)$(DARWIN),)
HARDEN_LINK ?= -Wl,-z,relro,-z,now
PIE      ?= -pie
PLATFORM := -fvisibility=hidden -fPIC -pthread
SHARED   := libtern.so
CC_SHARED = $(CC_LINK) -shared $(HARDEN_LINK) -Wl,-soname,libtern.so.$(ABI) -Wl,--version-script=mk/libtern.map
EDIT_LIBS ?= -ledit
else ifneq ($(DARWIN),)
# Its linker does by itself what the others are asked for.
PLATFORM := -fvisibility=hidden -fPIC -pthread -include src/base/os/os_darwin.h
SHARED   := libtern.dylib
CC_SHARED = $(CC_LINK) -dynamiclib -Wl,-install_name,@rpath/libtern.$(ABI).dylib -Wl,-exported_symbols_list,$(BUILD)/gen/darwin.map
EDIT_LIBS ?= -ledit
else
# mk/ports.mk. Stacks as large as on Linux; addresses are random there without being asked for.
# -Wno-format: mingw judges formats by the old printf, and links the standard one.
HARDEN_LINK ?=
PLATFORM_LINK := -static -Wl,--stack,8388608
PLATFORM := -Wno-format -D_WIN32_WINNT=0x0A00 -D_POSIX_THREAD_SAFE_FUNCTIONS=200112L -include src/base/os/os_windows.h \
            -DPCRE2_STATIC -DUTF8PROC_STATIC
SHARED   := tern.dll
EXE      := .exe
CC_SHARED = $(CC_LINK) -shared $(HARDEN_LINK) -Wl,--out-implib,$(BUILD)/libtern.dll.a $(BUILD)/gen/tern.def
endif
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 $(OPT) $(CFLAGS) $(WARNINGS) $(HARDEN) -ffp-contract=off \
              -fno-math-errno $(PLATFORM) -Iinclude -Isrc -I. -I$(BUILD)/gen $(CPPFLAGS) $(EXTRA_CFLAGS)
CC_LINK   = $(CC) $(ALL_CFLAGS) $(LDFLAGS) $(PLATFORM_LINK)
LIBS     := -lpcre2-8 -lutf8proc
PKG_CONFIG ?= pkg-config

# Parts that tern can be built without. It then says so where one is asked for (src/store/store_none.c,
# src/media/image_none.c, src/media/sound_none.c); ZLIB= and the like leave them out on purpose.
there = $(shell $(PKG_CONFIG) --exists $(MODULES_$(1)) 2>/dev/null && echo 1)
cflags_of = $(shell $(PKG_CONFIG) --cflags $(MODULES_$(1)))
libs_of   = $(shell $(PKG_CONFIG) --libs $(MODULES_$(1)))
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
# Libraries of which only some commands know are loaded by them (src/base/os/lazy.h), not at every start.
# LAZY= links them, and so does a static program.
LAZY ?= $(if $(or $(WINDOWS)$(DARWIN),$(filter-out x86_64 aarch64,$(MACHINE)),$(findstring -static,$(CFLAGS) $(EXTRA_CFLAGS) $(PIE) $(HARDEN_LINK))),,1)
LAZY := $(LAZY)
CLI_LIBS := $(if $(WINDOWS),-lws2_32 -lntdll,$(if $(LAZY),,$(EDIT_LIBS)))
# The stubs of a group of libraries, where it is built in: $(1): name, $(2): the libraries
lazy_obj = $(if $(and $(LAZY),$(2)),$(BUILD)/obj/lazy_$(1).o)

PARTS_IN  := $(foreach p,$(PARTS),$(if $(filter 1,$($(SWITCH_$(p)))),$(p)))
PARTS_OUT := $(filter-out $(PARTS_IN),$(PARTS))

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
# Flags of some files alone: others need not be compiled again when a package comes.
STORE_SRC   := $(filter-out %_test.c %/store_none.c,$(wildcard src/store/*.c))
IMAGE_SRC := $(addprefix src/media/image_,jpeg.c png.c webp.c gif.c)
ifeq ($(ZLIB),1)
$(call obj,src/train/data/data_stream.c src/train/data/data_documents_test.c fuzz/texts/documents_fuzz.c apps/serve/request/long_body.c): ALL_CFLAGS += -DTERN_ZLIB=1 $(call cflags_of,gz)
LIBS += $(call libs_of,gz)
endif
ifeq ($(SQLITE),1)
$(call obj,$(STORE_SRC) tests/library/store/store_test.c tests/library/store/store_failures_test.c): ALL_CFLAGS += -DTERN_SQLITE=1 $(call cflags_of,memory)
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
# What no function of apps/web asks for: its modules have X_none.c in place of X.c.
NOT_ASKED := src/kernels/webgpu/run/gpu_drafts.c src/media/voice_net.c src/session/generate/device_drafts.c

LIBS += -lm $(if $(WINDOWS),-lwinpthread,-ldl -pthread) # last: static libraries before them need them

# Only files with an instruction set in their name are compiled for it, and only for their machine.
ISA_x86_64  := avx2 avxvnni avx512 avx512bf16 amx amxbf16
ISA_aarch64 := neon dotprod i8mm
# gcc aligns stacks to 16 bytes at most on Windows, and puts wider vectors there all the same.
STACKED_WINDOWS := -Wa,-muse-unaligned-vector-move
STACKED       := $(if $(WINDOWS),$(STACKED_WINDOWS))
FLAGS_avx2    := -mavx2 -mfma -mf16c $(STACKED)
FLAGS_avxvnni := $(FLAGS_avx2) -mavxvnni
FLAGS_avx512  := $(FLAGS_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512vbmi
FLAGS_avx512bf16 := $(FLAGS_avx512) -mavx512bf16
FLAGS_amx     := $(FLAGS_avx512) -mamx-tile -mamx-int8
FLAGS_amxbf16 := $(FLAGS_avx512bf16) -mamx-tile -mamx-bf16
FLAGS_neon    :=
FLAGS_dotprod := -march=armv8.2-a+dotprod
FLAGS_i8mm    := $(FLAGS_dotprod)+i8mm
ISAS     := $(ISA_$(MACHINE))
ALL_ISAS := avx2 avxvnni avx512 avx512bf16 amx amxbf16 neon dotprod i8mm wasm

# What is in and what is left out, and which packages bring it.
define say_parts
echo; echo "  $(BUILD)/tern has no"; \
$(foreach p,$(PARTS_OUT),printf '    %-56s %s\n' "$(BRINGS_$(p))" "($(PACKAGES_$(p)))";) \
$(if $(PARTS_IN),echo "  and has"; $(foreach p,$(PARTS_IN),echo "    $(BRINGS_$(p))";)) \
echo "  \`tools/install_deps.sh complete\` installs the packages (Debian's names), and make adds what they bring."; echo
endef
