#!/usr/bin/env python3
"""A model of a published architecture with random weights, as a folder of transformers: for `ternarize.py --init`.

    random_model.py TYPE VOCABULARY OUT [KEY=VALUE...]

TYPE is transformers' name of the architecture (qwen3, qwen3_5_text, lfm2), VOCABULARY the folder that
`tern data tokenizer` made, KEY=VALUE a field of config.json, in JSON: hidden_size=512 tie_word_embeddings=true.
Weights are drawn as transformers draws them, from seed 1. Needs torch and transformers.
"""
import json, os, shutil, sys


def value_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def main(argv):
    if len(argv) < 3 or any("=" not in a for a in argv[3:]):
        sys.exit(__doc__)
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    with open(os.path.join(argv[1], "tokenizer.json"), encoding="utf-8") as f:
        told = json.load(f)
    added = [t["id"] for t in told.get("added_tokens", [])]
    n_tokens = 1 + max([*told["model"]["vocab"].values(), *added])
    with open(os.path.join(argv[1], "tokenizer_config.json"), encoding="utf-8") as f:
        end = json.load(f).get("eos_token")
    ends = [t["id"] for t in told.get("added_tokens", []) if t["content"] == end]
    fields = {"vocab_size": n_tokens, "eos_token_id": ends[0] if ends else None, "bos_token_id": None, "pad_token_id": None,
              **{key: value_of(text) for key, text in (a.split("=", 1) for a in argv[3:])}}
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(argv[0], **fields), torch_dtype=torch.float32)
    model.save_pretrained(argv[2])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(argv[1], name), argv[2])
    print("%s: %d parameters" % (argv[2], sum(p.numel() for p in model.parameters())))


if __name__ == "__main__":
    main(sys.argv[1:])
