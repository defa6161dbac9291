# What the repository's own models are made from.

TEXT   ?= $(TERN_TEST_DATA)/text
CORPUS ?= $(BUILD)/corpus

.PHONY: story-corpus
story-corpus: all ## vocabulary and shards of the story model; TEXT=folder CORPUS=folder
	recipes/stories/corpus.sh $(TEXT) $(CORPUS) $(BUILD)/tern

# A model for models/stories.gguf, in three stages (21 and 11 minutes on an H200 with the newer WebGPU library, days on
# a laptop's CPU; the third a few minutes on two cores): all texts; then chats, of which only the answers are learned; then
# a few steps of both, so that it still goes on with a text. DEVICE=cpu trains without a GPU. The one that is carried
# was made so; story-check says whether another is better.
DEVICE  ?= webgpu
STEPS   ?= 15600
STEPS_2 ?= 8000
STEPS_3 ?= 80
STORY_MODEL ?= $(BUILD)/stories.gguf
STORY_RUN := $(BUILD)/story-run
story_stage = $(BUILD)/tern convert $(STORY_RUN)$(1)/step-$(shell printf %08d $(2)).gguf $(3) --head-type f16
.PHONY: story-model
story-model: story-corpus ## train a model to carry: STORY_MODEL=FILE (build/stories.gguf); TEXT=folder DEVICE=webgpu|cpu
	$(BUILD)/tern train --data $(CORPUS)/stories -o $(STORY_RUN) --resume --device $(DEVICE) \
	    --preset micro --seq-len 1024 -n $(STEPS) --bf16 --valid-tokens 300000
	$(call story_stage,,$(STEPS),$(BUILD)/stories-1.gguf)
	$(PYTHON) recipes/stories/second.py $(TEXT) $(CORPUS)/second
	$(BUILD)/tern data build $(CORPUS)/second/train.jsonl --held-out $(CORPUS)/second/valid.jsonl \
	    --tokenizer $(BUILD)/stories-1.gguf -o $(CORPUS)/second/shards
	$(BUILD)/tern data build $(CORPUS)/second/third.jsonl --tokenizer $(BUILD)/stories-1.gguf -o $(CORPUS)/second/third
	$(BUILD)/tern train --data $(CORPUS)/second/shards -o $(STORY_RUN)-2 --resume --device $(DEVICE) --assistant-only \
	    --init $(BUILD)/stories-1.gguf --schedule two-stage --weight-decay 0.1 --batch-tokens 32768 --seq-len 1024 -n $(STEPS_2) --bf16 \
	    --rate 1.5e-3 --rate-2 8e-4 --warmup 150
	$(call story_stage,-2,$(STEPS_2),$(BUILD)/stories-2.gguf)
	$(BUILD)/tern train --data $(CORPUS)/second/third -o $(STORY_RUN)-3 --resume \
	    --init $(BUILD)/stories-2.gguf --schedule two-stage --weight-decay 0.1 --batch-tokens 2048 --seq-len 1024 -n $(STEPS_3) --valid-tokens 2048 \
	    --rate 5e-4 --rate-2 3e-4 --warmup 4
	$(call story_stage,-3,$(STEPS_3),$(STORY_MODEL))

CHECKED ?= models/stories.gguf
.PHONY: story-check
story-check: all ## count what CHECKED (the carried model) does of 60 requests by others, of 100 of four kinds, and of 100 for stories
	recipes/stories/score.py $(CHECKED) $(BUILD)/tern --fair
	recipes/stories/score.py $(CHECKED) $(BUILD)/tern
	recipes/stories/check.py $(CHECKED) $(BUILD)/tern

# An embedding model of 7.7 MB out of the story model: pairs of texts, training (8 minutes on an H200 with the newer
# WebGPU library), export. embed-check says how often it finds the right passage, and how often comparing words does.
EMBED_PAIRS ?= $(BUILD)/embed-pairs
EMBED_OUT   ?= $(BUILD)/embed
.PHONY: embed-model embed-check
$(EMBED_PAIRS)/train.jsonl: recipes/embed/pairs.py
	recipes/embed/pairs.py $(TEXT) $(EMBED_PAIRS)
embed-model: all $(EMBED_PAIRS)/train.jsonl ## train an embedding model: build/embed/embed.gguf; TEXT=folder DEVICE=webgpu|cpu
	DEVICE=$(DEVICE) recipes/embed/train.sh $(EMBED_PAIRS) $(EMBED_OUT) $(BUILD)/tern

EMBED_CHECKED ?= $(EMBED_OUT)/embed.gguf
embed-check: all $(EMBED_PAIRS)/train.jsonl ## recall@1, @10 and MRR of EMBED_CHECKED on held-out pairs, beside BM25
	recipes/embed/score.py $(EMBED_CHECKED) $(EMBED_PAIRS) $(BUILD)/tern

.PHONY: recipe-test
recipe-test: all ## the recipes' own tests: what they find, what they make up, the rules of the scores
	cd recipes/stories && $(PYTHON) recipe_test.py
	cd recipes/embed && $(PYTHON) embed_test.py
	cd recipes/finetune && $(PYTHON) finetune_test.py
	cd recipes/ternarize && TERN=$(abspath $(BUILD)/tern) $(PYTHON) ternarize_test.py
ifneq ($(shell command -v $(PYTHON)),)
test: recipe-test
endif

# Tens of thousands of chains from what the model itself writes (four million tokens), begun
# with the corpus where it is there; and the small table, from the corpus.
.PHONY: story-chains
story-chains: all ## a large table of chains for the model that the repository carries
	$(BUILD)/tern mine -m models/stories.gguf --generate 4M --buckets 65535 --chain-max-length 8 \
	    --min-probability 0.1 -o models/story-chains.bin $(wildcard $(CORPUS)/stories)
	$(if $(wildcard $(CORPUS)/stories),$(BUILD)/tern mine -m models/stories.gguf $(CORPUS)/stories)
