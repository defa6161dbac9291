# tern in the browser: `make web` compiles the library and apps/web to WebAssembly, three times, by
# the rules of mk/ports.mk (docs/browser.md). The same sources give the same bytes.
#
#     tern.wasm           SIMD128 with exact emulated fma; every browser that has SIMD, one thread
#     tern-relaxed.wasm   relaxed SIMD: fused multiply-add, dot products of int8; one thread
#     tern-threads.wasm   the same with shared memory, for pages that are cross-origin isolated
#     tern-shaders.json   the texts of the GPU's kernels, for pages that have a GPU
#
# Debian's packages: clang-19 lld-19 libclang-rt-19-dev-wasm32 wasi-libc dpkg-dev, and nodejs and npm, for
# binaryen (packages/tern/package.json has its version).
# What checks them (Tern.diagnose) is two more, tern-check.wasm and tern-relaxed-check.wasm: the same
# objects, with the scalar kernels, the tests of kernels, and `tern diagnose`.
WEB       = $(BUILD)/web
WEB_DEPS  = $(WEB)/deps
WEB_FLAVOURS = simd relaxed threads
WEB_CHECKS   = simd-check relaxed-check
WEB_FILE_simd    = $(WEB)/tern.wasm
WEB_FILE_relaxed = $(WEB)/tern-relaxed.wasm
WEB_FILE_threads = $(WEB)/tern-threads.wasm
WEB_FILE_simd-check    = $(WEB)/tern-check.wasm
WEB_FILE_relaxed-check = $(WEB)/tern-relaxed-check.wasm
WEB_MODULES = $(foreach f,$(WEB_FLAVOURS) $(WEB_CHECKS),$(WEB_FILE_$(f)))
WEB_FLAGS_simd    = $(WASM_FLAGS_simd128) $(WEB_LESS)
WEB_FLAGS_relaxed = $(WASM_FLAGS_relaxed) $(WEB_LESS)
WEB_FLAGS_simd-check    = $(WEB_FLAGS_simd) $(WEB_MORE_FLAGS)
WEB_FLAGS_relaxed-check = $(WEB_FLAGS_relaxed) $(WEB_MORE_FLAGS)
WEB_FLAGS_threads = $(WEB_FLAGS_relaxed) -matomics -mbulk-memory -D_Thread_local=
# Browsers do not train, and the scalar kernels are the specification: only checks use them.
WEB_LESS = -DTERN_NO_TRAINING -DTERN_NO_SCALAR -DTERN_NO_WRITERS -DTERN_NO_SAMPLES -DTERN_NO_SCREENED_HEADS \
           -DTERN_NO_MATRIX -DTERN_NO_GRIDS -DTERN_NO_DORA
WEB_MORE_FLAGS = -UTERN_NO_TRAINING -UTERN_NO_SCALAR -UTERN_NO_SAMPLES
# Of each module, compressed: what a page has to load before anything else.
WEB_GZIP_MAX = 560000
web_gzip_max = $(if $(filter %check.wasm,$(1)),$$((2 * $(WEB_GZIP_MAX))),$(WEB_GZIP_MAX))

# Kernels are compiled for speed, the rest for size. No dates, no names of folders: nothing that
# differs from one build to the next.
WEB_SRC   = $(sort $(filter-out %_scalar.c %/dora.c src/kernels/webgpu/train/%.c $(NOT_ASKED),$(OTHER_SRC)) $(NOT_ASKED:.c=_none.c) $(call isa_files,wasm)) $(sort $(filter-out %_test.c,$(wildcard apps/web/*.c apps/web/unicode/*.c)))
# Without error.c, and without what only saves time: apps/web/web_left_out.c.
WEB_PCRE2 = $(addprefix $(WEB_DEPS)/pcre2/src/pcre2_,compile.c jit_compile.c pattern_info.c config.c context.c \
            extuni.c find_bracket.c match.c match_data.c newline.c ord2utf.c script_run.c string_utils.c \
            valid_utf.c xclass.c few_tables.c few_ucd.c)
WEB_PCRE2_SEARCH = $(addprefix $(WEB_DEPS)/pcre2/src/pcre2_,auto_possess.c study.c)
WEB_OTHERS = $(WEB_PCRE2) $(WEB_DEPS)/pcre2/src/pcre2_chartables.c
WEB_CFLAGS = -iquote $(WEB)/gen -Oz -fvisibility=hidden -DTERN_NO_TRAINING -I$(WEB_DEPS)/include -Iapps/web/unicode \
             -ffile-prefix-map=$(CURDIR)=. -Wno-builtin-macro-redefined
# Kernels are vectors already: what a compiler makes of their ends is larger and no faster.
WEB_AS_WRITTEN = -fno-vectorize -fno-slp-vectorize -fno-unroll-loops
WEB_PCRE2_CFLAGS = -w -DHAVE_CONFIG_H -DSUPPORT_UNICODE -DSUPPORT_PCRE2_8 -DPCRE2_CODE_UNIT_WIDTH=8 \
                   -I$(WEB_DEPS)/pcre2/src

$(WEB_DEPS)/versions: tools/web/fetch_web_sources.sh
	@tools/install_deps.sh clang-19 lld-19 libclang-rt-19-dev-wasm32 wasi-libc dpkg-dev
	tools/web/fetch_web_sources.sh $(WEB_DEPS)
# PCRE2's own recipe for builds without its configure script.
$(WEB_DEPS)/include/pcre2.h: $(WEB_DEPS)/versions
	@mkdir -p $(@D)
	cp $(WEB_DEPS)/pcre2/src/config.h.generic $(WEB_DEPS)/include/config.h
	cp $(WEB_DEPS)/pcre2/src/pcre2_chartables.c.dist $(WEB_DEPS)/pcre2/src/pcre2_chartables.c
	cp $(WEB_DEPS)/pcre2/src/pcre2.h.generic $@

# Browsers do not say which shapes matrix units have, and pages screen no heads (TERN_NO_SCREENED_HEADS), so nothing asks
# for these kernels there.
WEB_WGSL = $(filter-out src/kernels/webgpu/train/% %/ternary_gemm_matrix.wgsl %/ternary_gemm_narrow.wgsl \
                        %/ternary_gemm_groups.wgsl %/attention_prompt_matrix.wgsl %/attention_sums.wgsl %/wide_gemm_matrix.wgsl %/gemm_groups.wgsl src/kernels/webgpu/wgsl/head/head_% src/kernels/webgpu/wgsl/head/wide_head_%,$(WGSL))
# The modules have the kernels' names, and a file of its own their texts: who has no GPU need not load it.
WEB_SHADERS = $(WEB)/tern-shaders.json
$(WEB)/gen/webgpu_wgsl.inc: tools/web/embed_wgsl.sh $(WEB_WGSL) mk/web.mk
	@mkdir -p $(@D)
	@echo "  embed $@"
	$(Q)tools/web/embed_wgsl.sh -n $(WEB_WGSL) > $@.tmp && mv $@.tmp $@
$(WEB_SHADERS): tools/web/embed_wgsl.sh $(WEB_WGSL) mk/web.mk
	@mkdir -p $(@D)
	@echo "  embed $@"
	$(Q)tools/web/embed_wgsl.sh -j $(WEB_WGSL) > $@.tmp && mv $@.tmp $@

# All that PCRE2 knows of Unicode would be 7 KB more of a module (with gzip).
$(WEB)/make_pcre2_tables: tools/make_pcre2_tables.c $(WEB_DEPS)/include/pcre2.h
	@echo "  link  $@"
	$(Q)$(CC) -std=c11 -O1 $(WEB_PCRE2_CFLAGS) -I$(WEB_DEPS)/include -o $@ $<
$(WEB_DEPS)/pcre2/src/pcre2_few_ucd.c $(WEB_DEPS)/pcre2/src/few_names.inc: $(WEB)/make_pcre2_tables
	@echo "  write $@"
	$(Q)$< $(if $(filter %.inc,$@),names,ucd) > $@.tmp && mv $@.tmp $@
$(WEB_DEPS)/pcre2/src/pcre2_few_tables.c: $(WEB_DEPS)/pcre2/src/few_names.inc
	$(Q)sed 's/pcre2_ucptables\.c/few_names.inc/' $(@D)/pcre2_tables.c > $@.tmp && mv $@.tmp $@

# utf8proc itself would be 75 KB of a module (with gzip): apps/web/unicode has its answers in 20.
$(WEB)/make_unicode_tables: tools/web/make_unicode_tables.c $(WEB_DEPS)/include/pcre2.h
	@echo "  link  $@"
	$(Q)$(CC) -std=c11 -O1 -DUTF8PROC_STATIC -I$(WEB_DEPS)/utf8proc -o $@ $< $(WEB_DEPS)/utf8proc/utf8proc.c
$(WEB)/gen/unicode_tables.inc: $(WEB)/make_unicode_tables
	@mkdir -p $(@D)
	@echo "  write $@"
	$(Q)$< > $@.tmp && mv $@.tmp $@

# WebKit of 2025 has no other module, and loses floats in the loops of functions without SIMD.
$(WEB)/wasm_loops: tools/web/wasm_loops.c
	@mkdir -p $(@D)
	@echo "  link  $@"
	$(Q)$(CC) -std=c11 -O1 -Wall -Wextra -Werror -o $@ $<
WEB_AFTER_simd       = $(WEB)/wasm_loops
WEB_AFTER_simd-check = $(WEB)/wasm_loops

WEB_CHECK_SRC = $(sort $(wildcard src/kernels/cpu/*/*_scalar.c) src/kernels/cpu/float/float_wasm.c \
                src/kernels/cpu/select.c $(wildcard apps/web/checks/*.c) $(filter src/kernels/%,$(KERNEL_TEST_SRC)))

# $(1): a flavour
define web_flavour
web_obj_$(1) = $$(patsubst %.c,$(WEB)/obj/$(1)/%.o,$$(1))
$(call wasm_objects,$(WEB)/obj/$(1),$(WEB_CFLAGS) $(WEB_FLAGS_$(1)) $$(WEB_MORE),$(1),$(WEB_DEPS)/include/pcre2.h)
$(WEB)/obj/$(1)/src/kernels/cpu/%.o: WEB_MORE = -Os
$(WEB)/obj/$(1)/src/kernels/cpu/%_wasm.o: WEB_MORE = -O2 $(WEB_AS_WRITTEN)
$(WEB)/obj/$(1)/src/kernels/cpu/%wide_wasm.o: WEB_MORE = -Os
$(WEB)/obj/$(1)/src/kernels/cpu/float/float_wasm.o: WEB_MORE = -Os $(WEB_AS_WRITTEN)
$(WEB)/obj/$(1)/src/kernels/cpu/%_scalar.o: WEB_MORE = -Oz
$(WEB)/obj/$(1)/$(WEB_DEPS)/pcre2/%.o: WEB_MORE = $$(WEB_PCRE2_CFLAGS)
$(WEB)/obj/$(1)/src/kernels/webgpu/device/gpu_shaders.o: $(WEB)/gen/webgpu_wgsl.inc
$(WEB)/obj/$(1)/apps/web/unicode/%.o: WEB_MORE = -O2
$(WEB)/obj/$(1)/apps/web/unicode/web_unicode.o: $(WEB)/gen/unicode_tables.inc
endef

# gzip finds what is alike within 32 KB: neighbours that compress well save 2 KB of a module.
web_of = $(foreach o,$(2),$(if $(findstring $(1),$(o)),$(o)))
web_order = $(call web_of,/pcre2/,$(1)) $(call web_of,/src/kernels/cpu/,$(1)) \
            $(filter-out $(foreach f,/pcre2/ /src/kernels/ /src/models/,$(call web_of,$(f),$(1))),$(1)) \
            $(call web_of,/src/models/,$(1)) \
            $(filter-out $(call web_of,/src/kernels/cpu/,$(1)),$(call web_of,/src/kernels/,$(1)))

# What the linker joins, twice more for size: the second time finds 1.5 KB. Only what clang uses is enabled: with all
# features binaryen writes encodings that browsers do not read yet.
NODE     ?= node
NPM      ?= npm
WEB_TOOLS = packages/tern/node_modules/.package-lock.json
WASM_OPT       = $(NODE) packages/tern/node_modules/binaryen/bin/wasm-opt
WASM_OPT_FLAGS = -Oz -Oz --skip-pass=reorder-functions --strip-debug --strip-producers \
                 $(addprefix --enable-,simd relaxed-simd threads bulk-memory sign-ext mutable-globals nontrapping-float-to-int)
$(WEB_TOOLS): packages/tern/package-lock.json
	@command -v $(NODE) $(NPM) >/dev/null || tools/install_deps.sh nodejs npm
	cd packages/tern && $(NPM) ci --no-fund --no-audit --silent
	@touch $@

# $(1): a file, $(2): its objects, which this file's flags make, $(3): a flavour
define web_link
$(2): mk/web.mk
$(1): $(2) mk/web.mk $$(WEB_AFTER_$(3)) $(WEB_TOOLS)
	@echo "  link  $$@"
	$$(Q)$$(WASM_LD) -o $$@.tmp --no-entry $$(WASM_LIB)/crt1-reactor.o $$(call web_order,$$(filter %.o,$$^)) -L$$(WASM_LIB) -lc \
	    $$(WASM_RT) -z stack-size=1048576 --stack-first --gc-sections --strip-all --max-memory=4294967296 \
	    $$(WEB_LINK_$(3))
	$$(Q)$$(WASM_OPT) $$(WASM_OPT_FLAGS) $$@.tmp -o $$@.tmp
	$$(if $$(WEB_AFTER_$(3)),$$(Q)$$(WEB_AFTER_$(3)) $$@.tmp >/dev/null)
	@tools/web/check_wasm_size.sh $$@.tmp $$(call web_gzip_max,$$@)
	$$(Q)mv $$@.tmp $$@
endef
# wasi-libc was compiled without threads: its errno, declared thread-local, is one word for all, and only
# the engine's own thread may call it. The others compute; the heap, which they share, has a lock
# (base/os/os_wasm.c).
WEB_LINK_threads = --import-memory --shared-memory --no-check-features --export=__stack_pointer \
                   --export-if-defined=__wasm_init_tls --export-if-defined=__tls_size
.SECONDARY: $(WEB_OTHERS) $(WEB_PCRE2_SEARCH)
$(foreach f,$(WEB_FLAVOURS) $(WEB_CHECKS),$(eval $(call web_flavour,$(f))))
$(foreach f,$(WEB_FLAVOURS),$(eval $(call web_link,$(WEB_FILE_$(f)),$(call web_obj_$(f),$(WEB_SRC) $(WEB_OTHERS)),$(f))))
# Their own objects, and the flavour's.
$(foreach f,$(WEB_CHECKS),$(eval $(call web_link,$(WEB_FILE_$(f)),$(call web_obj_$(f),$(WEB_CHECK_SRC)) \
    $(call web_obj_$(f:-check=),$(filter-out $(WEB_CHECK_SRC),$(WEB_SRC)) $(WEB_OTHERS)),$(f))))
$(filter-out %few_ucd.c %few_tables.c,$(WEB_OTHERS) $(WEB_PCRE2_SEARCH)): $(WEB_DEPS)/include/pcre2.h ;

# The memory of a page (packages/tern/src/memory): src/store over the page's own SQLite, and no engine, which is
# in the modules above. Of simd's objects what the linker finds a use for.
WEB_MEMORY = $(WEB)/tern-memory.wasm
WEB_MEMORY_SRC = $(STORE_SRC) $(sort $(wildcard apps/web/memory/*.c))
WEB_MEMORY_OTHERS = src/session/embed/similarity.c apps/web/web_args.c apps/web/web_left_out.c apps/web/web_result.c $(sort $(wildcard apps/web/unicode/*.c)) \
                    $(filter src/base/% src/memory/% src/kernels/cpu/%,$(WEB_SRC)) $(WEB_OTHERS) $(WEB_PCRE2_SEARCH)
WEB_FLAGS_memory = $(WEB_FLAGS_simd) -Iapps/web/memory
$(eval $(call web_flavour,memory))
WEB_AFTER_memory = $(WEB)/wasm_loops
$(eval $(call web_link,$(WEB_MEMORY),$(call web_obj_memory,$(WEB_MEMORY_SRC)) $(call web_obj_simd,$(WEB_MEMORY_OTHERS)),memory))
WEB_MODULES += $(WEB_MEMORY)

.PHONY: web-modules
web-modules: $(WEB_MODULES) $(WEB_SHADERS) ## the engine in WebAssembly: build/web/tern*.wasm
.PHONY: test-web-build
test-web-build: web-modules ## the modules built in another folder: the same bytes
	tests/web_build_test.sh "$(MAKE)" $(BUILD)
