# Programs for machines other than this one, with all that they need inside. *-gnu run wherever glibc 2.28 or newer
# is, and load a WebGPU library; *-musl need no file of the system that they run on, and have no GPU; *-macos, which
# need libSystem, were never run. Their libraries are built from Debian's sources, once (tools/dist).
DIST       := $(abspath $(BUILD))/dist
DIST_KINDS ?= x86_64-gnu x86_64-musl aarch64-gnu aarch64-musl
DIST_CROSS_aarch64 = $(foreach t,AR:ar LD:ld STRIP:strip OBJCOPY:objcopy,$(subst :,=aarch64-linux-gnu-,$(t))) HERE=$(abspath $(BUILD))/tern
DIST_FLAGS_x86_64-musl := PIE=-no-pie HARDEN_LINK=-static
DIST_FLAGS_aarch64-musl = $(DIST_FLAGS_x86_64-musl) $(DIST_CROSS_aarch64)
DIST_FLAGS_aarch64-gnu  = $(DIST_CROSS_aarch64)
DIST_FLAGS_aarch64-macos = AR=llvm-ar-19 STRIP=llvm-strip-19 HERE=$(abspath $(BUILD))/tern
# What gcc's kernels ask the processor; tools/dist/stat.c.
DIST_LDFLAGS_x86_64-gnu   = $(shell gcc -print-libgcc-file-name) $(DIST)/x86_64-gnu/bin/stat.o
DIST_LDFLAGS_aarch64-musl = $(shell aarch64-linux-gnu-gcc -print-libgcc-file-name)
DIST_LDFLAGS_aarch64-gnu  = $(DIST_LDFLAGS_aarch64-musl) $(DIST)/aarch64-gnu/bin/stat.o
# $(1): kind, $(2): another build folder
dist_make = $(MAKE) BUILD=$(or $(2),$(BUILD)/dist/$(1)/build) CC=$(DIST)/$(1)/bin/cc CFLAGS= OPT=-O3 EXTRA_CFLAGS= LAZY= $(DIST_FLAGS_$(1)) \
    CPPFLAGS="-ffunction-sections -fdata-sections -I$(DIST)/$(1)/include" LDFLAGS="-Wl,$(if $(filter %-macos,$(1)),-dead_strip,--gc-sections) -L$(DIST)/$(1)/lib $(DIST_LDFLAGS_$(1))" \
    EDIT_LIBS="-ledit -ltinfo" PKG_CONFIG="env PKG_CONFIG_LIBDIR=$(DIST)/$(1)/lib/pkgconfig pkg-config --static"
dist_tree = $(call dist_make,$(1),$(2)) $(if $(filter %-gnu,$(1)),install,install-program) PREFIX= DESTDIR=$(DIST)/$(1)/$(3)
dist_name = tern-$(VERSION)-$(if $(filter %-macos,$(1)),macos-$(1:-macos=),linux-$(1))
dist_archive = WEBGPU=$(if $(filter %-gnu,$(1)),$(abspath $(WEBGPU))) tools/dist/archive.sh $(DIST)/$(1)/$(2) $(call dist_name,$(1)) $(DIST)/$(1)/licences $(DIST)/$(3)

.PHONY: dist static
dist: $(DIST_KINDS:%=dist-%) ## archives for Linux in build/dist: for glibc 2.28 and static, x86-64 and ARM; WEBGPU=DIR adds the library there
static: dist-program-x86_64-musl ## a program that needs no other file, build/dist/x86_64-musl/build/tern
# Also of Windows, where mk/ports.mk makes the program.
define dist_libraries
.PHONY: dist-libraries-$(1)
dist-libraries-$(1):
	tools/dist/compiler.sh $(1) $(DIST)/$(1)
	tools/dist/libraries.sh $(DIST)/$(1) $(DIST)/$(1)/bin/cc $(firstword $(subst -, ,$(1)))
endef
DIST_MACOS := aarch64-macos
$(foreach k,$(sort $(DIST_KINDS) $(DIST_MACOS)) x86_64-windows,$(eval $(call dist_libraries,$(k))))
define dist_rules
.PHONY: dist-program-$(1) dist-$(1) dist-test-$(1) dist-again-$(1)
dist-program-$(1): dist-libraries-$(1)
	+$$(call dist_make,$(1)) $(BUILD)/dist/$(1)/build/tern $(if $(filter %-macos,$(1)),$(BUILD)/dist/$(1)/build/libtern.dylib)
	$(if $(filter %-macos,$(1)),tools/dist/check_macos.sh $(BUILD)/dist/$(1)/build $(1))
dist-$(1): dist-libraries-$(1)$(if $(filter x86_64-%,$(1)),, $(BUILD)/tern)
	rm -rf $(DIST)/$(1)/tree
	+$$(call dist_tree,$(1),,tree) >$(DIST)/$(1)/install.log
	$$(call dist_archive,$(1),tree,.)
# The program's tests, those of its parts, and that sources give the same bytes in another folder.
dist-test-$(1): all dist-$(1) dist-again-$(1)
	tools/dist/check_program.sh $(BUILD)/tern $(BUILD)/dist/$(1)/build/tern $(1)
	$(if $(filter x86_64-%,$(1)),for script in $$(DIST_TESTS); do $$$$script $(BUILD)/dist/$(1)/build/tern || exit 1; done)
dist-again-$(1): dist-$(1)
	rm -rf $(DIST)/$(1)/tree-again $(DIST)/$(1)/build-again
	+$$(call dist_tree,$(1),$(BUILD)/dist/$(1)/build-again,tree-again) >$(DIST)/$(1)/install-again.log
	$$(call dist_archive,$(1),tree-again,$(1)/again)
	cmp $(DIST)/$(call dist_name,$(1)).tar.xz $(DIST)/$(1)/again/$(call dist_name,$(1)).tar.xz
endef
$(foreach k,$(sort $(DIST_KINDS) $(DIST_MACOS)),$(eval $(call dist_rules,$(k))))
.PHONY: dist-macos
dist-macos: $(DIST_MACOS:%=dist-%) ## an archive for macOS on ARM: never run

# Scripts that `make test` runs with the program of this machine; those of other processors have the first test alone.
DIST_TESTS := tests/memory_test.py tests/hub_test.py tests/serve/serve_access_test.py tests/serve/serve_image_test.py
.PHONY: dist-test
dist-test: $(DIST_KINDS:%=dist-test-%) ## the programs of `make dist`: their text, parts, size, start; and the same bytes twice
