# How files are made, and made again.

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
made_of = $(filter-out FORCE %.map,$^)
differs = $(subst =$(strip $(1))=,,=$(strip $(2))=)
again = $(if $(or $(filter-out FORCE,$?),$(call differs,$(2),$(was.$@))),$(call make_it,$(1),$(2)))
define make_it
@mkdir -p $(@D) && rm -f $@ $@.was
@echo "  $(1)$(if $(filter cc,$(1)),    $<,$(if $(filter ar,$(1)),    $@,  $@))"
$(Q)$(2)
@printf 'was.%s := %s\n' $(call quoted,$@) $(call quoted,$(subst $(hash),$$(hash),$(subst $$,$$$$,$(strip $(2))))) >$@.was
endef

# A program for tests or measurements: all that it is made of, with the library's libraries.
define link
@echo "  link  $@"
$(Q)$(CC_LINK) -o $@ $(filter-out %.a,$^) $(filter %.a,$^) $(LIBS)
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
