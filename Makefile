# tern: `make` builds build/tern and the libraries, `make help` lists the rest.
# One Makefile, no configure step; every source is found by wildcard.

BUILD   ?= build
CC      ?= gcc
AR      ?= ar
PREFIX  ?= /usr/local
OPT     ?= -O3
VERSION := 0.1.0
MACHINE := $(shell $(CC) -dumpmachine | cut -d- -f1)

# -ffp-contract=off: where a multiply and an add become one is written down (fma), never guessed, so
# that every instruction set gives the same bits.
CFLAGS   ?= -g
WARNINGS := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
ALL_CFLAGS := -std=c11 -D_GNU_SOURCE $(OPT) $(CFLAGS) $(WARNINGS) -ffp-contract=off -fno-math-errno \
              -fvisibility=hidden -fPIC -pthread -Iinclude -Isrc -I. -I$(BUILD)/gen $(EXTRA_CFLAGS)
LIBS     := -lpcre2-8 -lutf8proc -lm -pthread
CLI_LIBS := -ledit

# Only files with an instruction set in their name are compiled for it, and only for their machine.
ISA_x86_64  := avx2 avx512
ISA_aarch64 := neon dotprod
FLAGS_avx2    := -mavx2 -mfma -mf16c
FLAGS_avx512  := -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512vbmi
FLAGS_neon    :=
FLAGS_dotprod := -march=armv8.2-a+dotprod
ISAS     := $(ISA_$(MACHINE))
ALL_ISAS := avx2 avx512 neon dotprod

isa_files    = $(foreach i,$(1),$(wildcard src/kernels/cpu/*_$(i).c src/kernels/cpu/*/*_$(i).c))
TEST_PATTERN := %_test.c %_check.c
LIB_SRC  := $(filter-out $(TEST_PATTERN) $(call isa_files,$(filter-out $(ISAS),$(ALL_ISAS))),\
            $(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c))
TEST_SRC := $(filter $(TEST_PATTERN),$(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c tests/*.c)) tests/harness.c
CLI_SRC  := $(wildcard apps/cli/*.c)
FUZZ_SRC := $(wildcard fuzz/*_fuzz.c)

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
LIB_OBJ  := $(call obj,$(LIB_SRC))
TEST_OBJ := $(call obj,$(TEST_SRC))
CLI_OBJ  := $(call obj,$(CLI_SRC))

.PHONY: all run test help clean deps lint
.DEFAULT_GOAL := all
all: deps $(BUILD)/tern $(BUILD)/libtern.a $(BUILD)/libtern.so

define isa_rule
$(BUILD)/obj/%_$(1).o: ALL_CFLAGS += $(FLAGS_$(1))
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$(i))))

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/libtern.a: $(LIB_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^
$(BUILD)/libtern.so: $(LIB_OBJ)
	$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,libtern.so.0 -o $@ $^ $(LIBS)
$(BUILD)/tern: $(CLI_OBJ) $(BUILD)/libtern.a
	$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS) $(CLI_LIBS)
$(BUILD)/tern_tests: $(TEST_OBJ) $(BUILD)/libtern.a
	$(CC) $(ALL_CFLAGS) -o $@ $^ $(LIBS)

deps:
	@tools/install_deps.sh

clean: ## remove the build folder
	rm -rf $(BUILD)

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 14

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
