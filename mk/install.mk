# Installation under PREFIX, with completions and a service of systemd. Packages set LIBDIR and MANDIR, too.

.PHONY: install install-program uninstall
STRIP  ?= strip
LIBDIR ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
TO     := $(DESTDIR)$(PREFIX)
TO_LIB := $(DESTDIR)$(LIBDIR)
TO_MAN := $(DESTDIR)$(MANDIR)
SHELLS := bash zsh fish
# A service of systemd or launchd, where the server is built.
UNIT := $(if $(SERVE_NEEDS),$(if $(DARWIN),share/tern/tern.plist,lib/systemd/system/tern@.service))
# The library's file, and the name that programs which are linked with it know.
ifeq ($(DARWIN),)
SHARED_FILE := libtern.so.$(VERSION)
SHARED_ABI  := libtern.so.$(ABI)
else
SHARED_FILE := libtern.$(VERSION).dylib
SHARED_ABI  := libtern.$(ABI).dylib
endif
completion_bash := share/bash-completion/completions/tern
completion_zsh  := share/zsh/site-functions/_tern
completion_fish := share/fish/vendor_completions.d/tern.fish
# The program that knows its options: this machine's, where $(BUILD)/tern is another's.
HERE ?= $(BUILD)/tern
$(SHELLS:%=$(BUILD)/completions/%): $(BUILD)/completions/%: tools/completions.sh $(BUILD)/tern
	@mkdir -p $(@D)
	@echo "  shell $@"
	$(Q)tools/completions.sh $* $(HERE) >$@.tmp && mv $@.tmp $@

# What `tern chat stories` finds, and the drafts that lie beside it.
CARRIED := $(wildcard models/*.gguf) models/chain-buckets.bin
# Names may have spaces, which pkg-config needs escaped.
empty :=
escaped = $(subst $(empty) ,\\ ,$(1))
# From where CMake's files are to the headers: a tree that holds both may be moved.
to_include = case "$(LIBDIR)" in "$(PREFIX)"/*) printf '$${_tern_lib}/%s/include' "$$(printf %s "$(LIBDIR)" | sed 's|^$(PREFIX)/||; s|[^/][^/]*|..|g')" ;; *) printf %s "$(PREFIX)/include" ;; esac
cmake_libs = $(subst $(empty) ,;,$(strip $(LIBS)))
install: all install-program $(BUILD)/public/libtern.a ## to PREFIX (/usr/local), under DESTDIR
	install -d "$(TO_LIB)/pkgconfig" "$(TO_LIB)/cmake/tern" "$(TO)/include"
	install -m 644 $(PUBLIC) "$(TO)/include/"
	install -m 644 $(BUILD)/public/libtern.a "$(TO_LIB)/libtern.a"
	install -m 755 $(BUILD)/$(SHARED) "$(TO_LIB)/$(SHARED_FILE)"
	$(STRIP) $(if $(DARWIN),-x) "$(TO_LIB)/$(SHARED_FILE)"
	$(STRIP) $(if $(DARWIN),-S,-g) "$(TO_LIB)/libtern.a"
	ln -sf $(SHARED_FILE) "$(TO_LIB)/$(SHARED_ABI)"
	ln -sf $(SHARED_ABI) "$(TO_LIB)/$(SHARED)"
	sed -e 's|@PREFIX@|$(call escaped,$(PREFIX))|' -e 's|@LIBDIR@|$(call escaped,$(subst $(PREFIX)/,$${prefix}/,$(LIBDIR)))|' -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(LIBS)|' \
	    tools/tern.pc.in > "$(TO_LIB)/pkgconfig/tern.pc"
	for file in tern-config tern-config-version; do \
	    sed -e 's|@VERSION@|$(VERSION)|' -e 's|@ABI@|$(ABI)|' -e "s|@INCLUDE@|$$($(to_include))|" -e 's|@CMAKE_LIBS@|$(cmake_libs)|' tools/$$file.cmake.in > "$(TO_LIB)/cmake/tern/$$file.cmake" || exit 1; \
	done
install-program: $(BUILD)/tern $(SHELLS:%=$(BUILD)/completions/%)
	install -d "$(TO)/bin" "$(TO_MAN)/man1" "$(TO)/share/tern/models"
	install -m 755 $(BUILD)/tern "$(TO)/bin/tern"
	$(STRIP) "$(TO)/bin/tern"
	$(if $(UNIT),install -d "$(TO)/$(dir $(UNIT))" && sed -e 's|@PREFIX@|$(PREFIX)|' apps/serve/*/$(notdir $(UNIT)) > "$(TO)/$(UNIT)")
	install -m 644 docs/tern.1 "$(TO_MAN)/man1/tern.1"
	install -m 644 $(CARRIED) "$(TO)/share/tern/models/"
	$(foreach s,$(SHELLS),install -d "$(TO)/$(dir $(completion_$(s)))" && install -m 644 $(BUILD)/completions/$(s) "$(TO)/$(completion_$(s))" &&) true
uninstall: ## remove what install installed
	rm -f "$(TO)/bin/tern" $(PUBLIC:include/%="$(TO)/include/%") "$(TO_LIB)"/libtern.* "$(TO_LIB)/pkgconfig/tern.pc" "$(TO_LIB)"/cmake/tern/tern-config*.cmake \
	    "$(TO_MAN)/man1/tern.1" $(CARRIED:models/%="$(TO)/share/tern/models/%") $(if $(UNIT),"$(TO)/$(UNIT)") $(foreach s,$(SHELLS),"$(TO)/$(completion_$(s))")
	rmdir "$(TO)/share/tern/models" "$(TO)/share/tern" "$(TO_LIB)/cmake/tern" 2>/dev/null || true
.PHONY: deb
deb: ## Debian packages tern, libtern and libtern-dev in build/deb, looked at by lintian
	@command -v lintian >/dev/null || tools/install_deps.sh lintian dpkg-dev
	rm -rf $(BUILD)/deb
	+$(MAKE) install PREFIX=/usr LIBDIR=/usr/lib/$(shell dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null) DESTDIR=$(abspath $(BUILD))/deb/tree >/dev/null
	tools/dist/deb.sh $(BUILD)/deb/tree $(VERSION) $(ABI) $(BUILD)/deb $(wildcard $(BUILD)/gen/lazy_*.c)
.PHONY: install-test
install-test: all $(BUILD)/public/libtern.a $(SHELLS:%=$(BUILD)/completions/%)
	tests/install_test.sh "$(MAKE)" $(CC)
