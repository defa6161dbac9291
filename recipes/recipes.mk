# What the repository's own models are made from.

TEXT   ?= $(TERN_TEST_DATA)/text
CORPUS ?= $(BUILD)/corpus

.PHONY: story-corpus
story-corpus: all ## vocabulary and shards of the story model; TEXT=folder CORPUS=folder
	recipes/stories/corpus.sh $(TEXT) $(CORPUS) $(BUILD)/tern
