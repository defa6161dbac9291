# Other systems, by cross compilers. WebAssembly: all of src must compile, and the tests of what a system
# gives (src/base/os/os_test.c) run. Debian's packages: clang-19, wasi-libc and nodejs; for Windows
# gcc-mingw-w64-x86-64 and wine64.
OTHER_SRC  = $(filter-out $(TEST_PATTERN) $(call isa_files,$(ALL_ISAS)) $(STORE_SRC) $(IMAGE_SRC) src/media/sound_file.c,$(LIB_SRC)) \
             $(if $(filter memory,$(PARTS_IN)),src/store/store_none.c) $(if $(filter images,$(PARTS_IN)),src/media/image_none.c) \
             $(if $(filter sounds,$(PARTS_IN)),src/media/sound_none.c)
OTHER_TEST = $(filter-out $(TEST_PATTERN),$(wildcard src/base/*.c src/base/*/*.c)) src/base/os/os_test.c \
             tests/plain/plain_harness.c
OTHER_CFLAGS = -std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -O2 $(WARNINGS) -ffp-contract=off -fno-math-errno \
               -DPCRE2_STATIC -DUTF8PROC_STATIC -Iinclude -Isrc -I. -I$(BUILD)/gen

# The libraries' headers alone, without those of this system that lie beside them.
$(BUILD)/other/include/pcre2.h: | deps
	@mkdir -p $(@D)
	cp /usr/include/pcre2.h /usr/include/utf8proc.h $(@D)
$(BUILD)/wasm/obj/src/kernels/webgpu/device/gpu_shaders.o: $(BUILD)/gen/webgpu_wgsl.inc

# ---- Static programs ----------------------------------------------------------------------------

# They have what the system gives but for libraries that are loaded: glibc's dlopen would end them.
.PHONY: static-test
$(BUILD)/os_test_static: $(call obj,$(filter-out $(TEST_PATTERN),$(wildcard src/base/*.c src/base/*/*.c)) src/base/os/os_test.c src/base/os/lazy_test.c tests/plain/plain_harness.c) FORCE
	$(call again,link,$(CC_LINK) -static -o $@ $(made_of) -lm -pthread 2>/dev/null)
static-test: $(BUILD)/os_test_static
	cd $(BUILD) && ./os_test_static

# ---- Windows ------------------------------------------------------------------------------------

# A program and a DLL of this Makefile by another compiler, with libraries as those of `make dist`.
WINDOWS_KIND := x86_64-windows
WINDOWS_OPT  ?= -O3
windows_make  = $(call dist_make,$(WINDOWS_KIND),$(1)) AR=x86_64-w64-mingw32-ar
WINE ?= $(firstword $(shell command -v wine64 wine) $(wildcard /usr/lib/wine/wine64) wine)
.PHONY: windows
windows: dist-libraries-$(WINDOWS_KIND) ## tern.exe and tern.dll for Windows, in build/windows
	+$(call windows_make,$(BUILD)/windows) OPT="$(WINDOWS_OPT)" all
# The engine alone, compiled in half the time, with what it needs of the libraries.
# A minute's worth. Of the others a few replace files that are mapped, which Windows refuses.
WINDOWS_TESTS ?= os_ npy_ gguf_ chains_ diagnose_finds fma gemm_ grouped_ ternary_ head_ bits_of tok_ blob
.PHONY: windows-tests test-windows
windows-tests:
	tools/dist/compiler.sh $(WINDOWS_KIND) $(DIST)/$(WINDOWS_KIND)
	tools/dist/libraries.sh $(DIST)/$(WINDOWS_KIND) $(DIST)/$(WINDOWS_KIND)/bin/cc x86_64 pcre2 utf8proc zlib
	+$(call windows_make,$(BUILD)/windows-test) OPT=-O1 KERNEL_OPT=-O2 all $(BUILD)/windows-test/tern_tests.exe
ifneq ($(and $(shell command -v x86_64-w64-mingw32-gcc),$(shell command -v $(WINE))),)
test-windows: $(BUILD)/tern windows-tests ## tern.exe and the engine's tests, with Wine
	tests/arches/windows.sh $(BUILD)/tern $(BUILD)/windows-test $(WINE)
	trap 'rm -rf test-files' EXIT; WINEDEBUG=-all WINEPREFIX=$(abspath $(BUILD))/windows-test/wine \
	    $(WINE) $(BUILD)/windows-test/tern_tests.exe $(or $(TESTS),$(WINDOWS_TESTS))
else
test-windows:
	@echo "test-windows: skipped, it needs Debian's gcc-mingw-w64-x86-64 and wine64"
endif
.PHONY: test-windows-apps
test-windows-apps: windows ## serve, pull, memory, mcp and agent of tern.exe, with Wine
	tests/arches/windows_apps.sh $(BUILD)/windows/tern.exe $(WINE)
ifneq ($(WINDOWS),)
RESOURCES := $(BUILD)/obj/apps/system/windows.o
$(RESOURCES): apps/system/windows.rc apps/system/windows.manifest FORCE
	$(call again,write,$(TARGET)-windres -Iapps/system -DTERN_NUMBERS=$(subst .,$(comma),$(VERSION)) '-DTERN_VERSION=\"$(VERSION)\"' $< $@)
endif
ifneq ($(WINDOWS)$(DARWIN),)
# What the library offers: PE has no visibility, and Darwin's linker would show PCRE2's functions, too.
$(BUILD)/gen/tern.def: $(PUBLIC)
	@mkdir -p $(@D)
	@echo "  write $@"
	$(Q)(echo EXPORTS; sed 's|//.*||' $^ | tr '\n' ' ' | grep -o 'TERN_API [^(]*(' | \
	    sed -n 's/.*[ *]\(tern_[a-z0-9_]*\)($$/    \1/p' | sort -u) >$@
$(BUILD)/gen/darwin.map: $(BUILD)/gen/tern.def
	$(Q)sed -n 's/^    /_/p' $< >$@
endif

# ---- WebAssembly --------------------------------------------------------------------------------

WASM_CC ?= clang-19
WASM_LD ?= wasm-ld-19
WASM_INCLUDE ?= /usr/include/wasm32-wasi
WASM_LIB     ?= /usr/lib/wasm32-wasi
WASM_RT      ?= /usr/lib/llvm-19/lib/clang/19/lib/wasi/libclang_rt.builtins-wasm32.a
WASM_BASE = --target=wasm32-wasi -nostdlibinc -isystem $(WASM_INCLUDE) $(OTHER_CFLAGS) \
            -D_WASI_EMULATED_PROCESS_CLOCKS
# $(1): a folder for objects, $(2): its further flags, $(3): words for people, $(4): what must be there first
define wasm_objects
$(1)/%.o: %.c | $(4)
	@mkdir -p $$(@D)
	@echo "  cc    $$< ($(3))"
	$$(Q)$$(WASM_CC) $$(WASM_BASE) $(2) -MMD -MP -c $$< -o $$@
endef
wasm_obj = $(patsubst %.c,$(BUILD)/wasm/obj/%.o,$(1))
$(eval $(call wasm_objects,$(BUILD)/wasm/obj,-I$(BUILD)/other/include,WebAssembly,$(BUILD)/other/include/pcre2.h))
$(BUILD)/wasm/os_test.wasm: $(call wasm_obj,$(OTHER_TEST))
	$(Q)$(WASM_LD) -o $@ $(WASM_LIB)/crt1-command.o $^ -L$(WASM_LIB) -lc $(WASM_RT)
.PHONY: check-wasm
check-wasm: $(call wasm_obj,$(OTHER_SRC)) $(BUILD)/wasm/os_test.wasm ## compile the library for WASI, run the tests of what a system gives with Node
	cd $(BUILD)/wasm && rm -rf test-files && node --no-warnings $(abspath tests/run_wasi.mjs) os_test.wasm

# The kernels and their checks, with SIMD128 and with relaxed SIMD. (Node 20 is wrong about the
# latter's dot product: it runs in Chromium.)
WASM_VARIANTS      = simd128 relaxed
WASM_FLAGS_simd128 = -msimd128
WASM_FLAGS_relaxed = -msimd128 -mrelaxed-simd
WASM_KERNEL_SRC = $(filter-out $(TEST_PATTERN) src/base/os_% src/base/os/os_% src/base/file/os_%,$(filter $(KERNEL_PARTS),$(OTHER_SRC))) \
                  src/base/os/os_wasm.c src/base/os/os_file.c src/base/os/os_posix_file.c \
                  src/base/os/os_named_folder.c $(call isa_files,wasm)
WASM_KERNEL_TEST_SRC = $(filter src/kernels/%,$(KERNEL_TEST_SRC)) tests/plain/plain_harness.c
define wasm_kernels
$(call wasm_objects,$(BUILD)/wasm/$(1),-O3 $(WASM_FLAGS_$(1)) -I$(BUILD)/other/include,WebAssembly $(1),$(BUILD)/other/include/pcre2.h)
$(BUILD)/wasm/kernels_$(1).wasm: $(patsubst %.c,$(BUILD)/wasm/$(1)/%.o,$(WASM_KERNEL_SRC) $(WASM_KERNEL_TEST_SRC))
	@echo "  link  $$@"
	$(Q)$(WASM_LD) -o $$@ $(WASM_LIB)/crt1-command.o $$^ -L$(WASM_LIB) -lc $(WASM_RT) --stack-first -z stack-size=1048576
endef
$(foreach v,$(WASM_VARIANTS),$(eval $(call wasm_kernels,$(v))))
.PHONY: check-kernels-wasm
check-kernels-wasm: $(BUILD)/wasm/kernels_simd128.wasm $(BUILD)/wasm/kernels_relaxed.wasm ## every kernel against the scalar reference in WebAssembly: SIMD128 in Node, relaxed SIMD in Chromium
	cd $(BUILD)/wasm && node --no-warnings $(abspath tests/run_wasi.mjs) kernels_simd128.wasm
	node tests/run_wasi_chromium.mjs $(BUILD)/wasm/kernels_relaxed.wasm

-include $(shell find $(BUILD)/windows/obj $(BUILD)/wasm $(BUILD)/web/obj -name '*.d' 2>/dev/null)
