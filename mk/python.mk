# The Python package: bindings/python/tern, declarations made of the headers, and the library. It is
# assembled in $(BUILD)/python, where tests find it, and `make python` makes a wheel of it.
PYTHON_THERE := $(shell command -v $(PYTHON) 2>/dev/null)
# Debian's has NumPy, where it is installed.
PYTHON_TEST  ?= $(firstword $(wildcard /usr/bin/python3) $(PYTHON))
PYTHON_TO    := $(BUILD)/python
PYTHON_SRC   := $(wildcard bindings/python/tern/*.py) bindings/python/tern/py.typed
PYTHON_FILES := $(PYTHON_SRC:bindings/python/%=$(PYTHON_TO)/%) $(PYTHON_TO)/tern/_c.py $(PYTHON_TO)/tern/libtern.so

# What it needs of others goes into its library where there are static ones (Debian has them), so that
# the wheel runs where nothing is installed.
static_of      = $(filter /%,$(shell $(CC) -print-file-name=lib$(1).a 2>/dev/null))
PYTHON_STATIC := $(foreach l,pcre2-8 utf8proc $(if $(filter 1,$(ZLIB)),z) $(if $(filter 1,$(SQLITE)),sqlite3),$(or $(call static_of,$(l)),missing))
PYTHON_LIBS   := $(if $(filter missing,$(PYTHON_STATIC)),$(LIBS),$(PYTHON_STATIC) -Wl,--exclude-libs,ALL -lm -ldl -pthread)

PYTHON_NOTICES := $(if $(filter missing,$(PYTHON_STATIC)),,$(wildcard /usr/share/doc/libpcre2-dev/copyright \
    /usr/share/doc/libutf8proc-dev/copyright $(if $(filter 1,$(ZLIB)),/usr/share/doc/zlib1g-dev/copyright) \
    $(if $(filter 1,$(SQLITE)),/usr/share/doc/libsqlite3-dev/copyright)))

# Debian's static decoders of images and sounds cannot go into a shared library; who has images in Python has
# Pillow, whose pixels the package takes.
PYTHON_OBJ := $(filter-out $(call obj,$(IMAGE_SRC) src/media/sound_file.c) $(BUILD)/obj/lazy_sounds.o $(BUILD)/obj/lazy_images.o,$(LIB_OBJ)) \
              $(call obj,$(if $(filter images,$(PARTS_IN)),src/media/image_none.c) $(if $(filter sounds,$(PARTS_IN)),src/media/sound_none.c))
$(PYTHON_TO)/tern/libtern.so: $(PYTHON_OBJ) mk/libtern.map FORCE
	$(call again,link,$(CC_SHARED) -s -o $@ $(made_of) $(PYTHON_LIBS))
$(PYTHON_TO)/tern/_c.py: bindings/python/declare.py $(PUBLIC)
	@mkdir -p $(@D)
	@echo "  write $@"
	$(Q)$(PYTHON) bindings/python/declare.py $@.tmp $(PUBLIC) && mv $@.tmp $@
$(PYTHON_SRC:bindings/python/%=$(PYTHON_TO)/%): $(PYTHON_TO)/%: bindings/python/%
	@mkdir -p $(@D)
	@cp $< $@

# What compiled programs know of the library.
.PHONY: abi check-abi
abi: $(PYTHON_TO)/tern/_c.py ## include/abi.txt again: with each release
	bindings/python/abi.py $< >include/abi.txt
check-abi: $(PYTHON_TO)/tern/_c.py
	bindings/python/abi.py $< include/abi.txt

.PHONY: python python-test python-types
python: $(PYTHON_FILES) ## the Python package, a wheel in build/python
	@$(PYTHON) bindings/python/wheel.py $(PYTHON_TO) $(VERSION) bindings/python/README.md LICENSE $(PYTHON_NOTICES) -- $(PYTHON_FILES)

ifeq ($(PYTHON_THERE),)
python-test python-types:
	@echo "$(PYTHON) is not there: PYTHON'S TESTS ARE SKIPPED" >&2
else
python-test: all python $(BUILD)/tiny.gguf ## the Python package's tests, a few seconds
	@$(PYTHON_TEST) bindings/python/tests/run.py $(BUILD) $(CC)
# mypy takes its time, so `make lint` has it and not `make test`.
python-types: python ## the Python package's types, if mypy is there
	@if command -v mypy >/dev/null; then TERN_TEST_TYPES=1 $(PYTHON_TEST) bindings/python/tests/run.py $(BUILD) $(CC) test_types; \
	else echo "mypy is not installed: PYTHON'S TYPES ARE NOT CHECKED" >&2; fi
endif
