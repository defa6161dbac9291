# What the repository's own models are made from.

TEXT   ?= $(TERN_TEST_DATA)/text
CORPUS ?= $(BUILD)/corpus

.PHONY: story-corpus
story-corpus: all ## vocabulary and shards of the story model; TEXT=folder CORPUS=folder
	recipes/stories/corpus.sh $(TEXT) $(CORPUS) $(BUILD)/tern

# models/stories.gguf again: corpus, 4500 steps of 32768 tokens (5 minutes on an H200 with the newer
# WebGPU library, days on a laptop's CPU), export. DEVICE=cpu trains without a GPU.
DEVICE ?= webgpu
STEPS  ?= 4500
.PHONY: story-model
story-model: story-corpus ## train the model that the repository carries; TEXT=folder DEVICE=webgpu|cpu
	$(BUILD)/tern train --data $(CORPUS)/stories -o $(BUILD)/story-run --resume --device $(DEVICE) \
	    --preset micro --layers 6 --seq-len 1024 -n $(STEPS) --bf16 --valid-tokens 500000
	$(BUILD)/tern convert $(BUILD)/story-run/step-$(shell printf %08d $(STEPS)).gguf models/stories.gguf --head-type f16

.PHONY: story-check
story-check: all ## count what the story model does of 100 things that it is asked for
	recipes/stories/check.py models/stories.gguf $(BUILD)/tern

# Tens of thousands of chains from what the model itself writes (four million tokens), begun
# with the corpus where it is there; and the small table, from the corpus.
.PHONY: story-chains
story-chains: all ## a large table of chains for the model that the repository carries
	$(BUILD)/tern mine -m models/stories.gguf --generate 4M --buckets 65535 --chain-max-length 8 \
	    --min-probability 0.1 -o models/story-chains.bin $(wildcard $(CORPUS)/stories)
	$(if $(wildcard $(CORPUS)/stories),$(BUILD)/tern mine -m models/stories.gguf $(CORPUS)/stories)
