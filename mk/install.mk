# Installation under PREFIX, with completions and a service of systemd. Packages set LIBDIR and MANDIR, too.

.PHONY: install install-program uninstall
STRIP  ?= strip
LIBDIR ?= $(PREFIX)/lib
MANDIR ?= $(PREFIX)/share/man
TO     := $(DESTDIR)$(PREFIX)
TO_LIB := $(DESTDIR)$(LIBDIR)
TO_MAN := $(DESTDIR)$(MANDIR)
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
	install -m 755 $(BUILD)/libtern.so "$(TO_LIB)/libtern.so.$(VERSION)"
	$(STRIP) "$(TO_LIB)/libtern.so.$(VERSION)"
	$(STRIP) -g "$(TO_LIB)/libtern.a"
	ln -sf libtern.so.$(VERSION) "$(TO_LIB)/libtern.so.$(ABI)"
	ln -sf libtern.so.$(ABI) "$(TO_LIB)/libtern.so"
	sed -e 's|@PREFIX@|$(call escaped,$(PREFIX))|' -e 's|@LIBDIR@|$(call escaped,$(subst $(PREFIX)/,$${prefix}/,$(LIBDIR)))|' -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(LIBS)|' \
	    tools/tern.pc.in > "$(TO_LIB)/pkgconfig/tern.pc"
	for file in tern-config tern-config-version; do \
	    sed -e 's|@VERSION@|$(VERSION)|' -e 's|@ABI@|$(ABI)|' -e "s|@INCLUDE@|$$($(to_include))|" -e 's|@CMAKE_LIBS@|$(cmake_libs)|' tools/$$file.cmake.in > "$(TO_LIB)/cmake/tern/$$file.cmake" || exit 1; \
	done
install-program: $(BUILD)/tern $(SHELLS:%=$(BUILD)/completions/%)
	install -d "$(TO)/bin" "$(TO_MAN)/man1" "$(TO)/share/tern/models"
	install -m 755 $(BUILD)/tern "$(TO)/bin/tern"
	$(STRIP) "$(TO)/bin/tern"
	$(if $(UNIT),install -d "$(TO)/$(dir $(UNIT))" && sed -e 's|@PREFIX@|$(PREFIX)|' apps/serve/systemd/tern@.service > "$(TO)/$(UNIT)")
	install -m 644 docs/tern.1 "$(TO_MAN)/man1/tern.1"
	install -m 644 $(CARRIED) "$(TO)/share/tern/models/"
	$(foreach s,$(SHELLS),install -D -m 644 $(BUILD)/completions/$(s) "$(TO)/$(completion_$(s))" &&) true
uninstall: ## remove what install installed
	rm -f "$(TO)/bin/tern" $(PUBLIC:include/%="$(TO)/include/%") "$(TO_LIB)"/libtern.* "$(TO_LIB)/pkgconfig/tern.pc" "$(TO_LIB)"/cmake/tern/tern-config*.cmake \
	    "$(TO_MAN)/man1/tern.1" $(CARRIED:models/%="$(TO)/share/tern/models/%") $(if $(UNIT),"$(TO)/$(UNIT)") $(foreach s,$(SHELLS),"$(TO)/$(completion_$(s))")
	rmdir "$(TO)/share/tern/models" "$(TO)/share/tern" "$(TO_LIB)/cmake/tern" 2>/dev/null || true
.PHONY: install-test
install-test: all $(BUILD)/public/libtern.a $(SHELLS:%=$(BUILD)/completions/%)
	tests/install_test.sh "$(MAKE)" $(CC)
