#!/usr/bin/env python3
"""The runs of compare.py again, in PyTorch with transformers and PEFT: the same windows in the same order, rates and
AdamW; only the first adapters are other draws. Needs torch, transformers, peft.

    torch_runs.py WORK --seed 1 [--methods lora,qlora,full,dpo,full-bf16]   # WORK/torch/METHOD-SEED/
    torch_runs.py WORK --answer WORK/tern/lora-1/peft                      # what transformers answers to the requests
"""
import argparse, json, math, os, time
import numpy as np
import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from windows import last_answers, marks_of, order, read_shards, windows

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
BASES = {"lora": "base", "qlora": "coded", "full": "base", "dpo": "tuned"}
device = "cuda" if torch.cuda.is_available() else "cpu"


def rate(s, peak, steps, step):
    r = peak * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - 1) / steps)))
    return r * min(1, step / s["warmup"])


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device)


def token_losses(model, x, y, bf16):
    x, y = torch.tensor(x, device=device), torch.tensor(y, device=device)
    with torch.autocast(device, torch.bfloat16, enabled=bf16):
        logits = model(input_ids=x, use_cache=False).logits
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten(), ignore_index=-100, reduction="none").view(y.shape)


class Chats:
    def __init__(self, work, s):
        marks = marks_of(work + "/base")
        self.train = windows(read_shards(work + "/shards", "train"), s["seq_len"], marks)
        self.valid = windows(read_shards(work + "/shards", "valid"), s["seq_len"], marks)
        self.per_step, self.n = s["batch"], len(self.train[0])

    def loss(self, model, at, bf16):
        x, y = self.train[0][at], self.train[1][at]
        self.n_scored = int((y >= 0).sum())
        return token_losses(model, x, y, bf16).sum() / self.n_scored

    def validate(self, model, bf16):
        (x, y), n = self.valid, self.per_step
        total = sum(token_losses(model, x[i : i + n], y[i : i + n], bf16).sum().item() for i in range(0, len(x), n))
        return total / int((y >= 0).sum())

    def prepare(self, model, bf16):
        pass


class Pairs:
    n_scored = 1  # each pair weighs as much

    def __init__(self, work, s):
        marks = marks_of(work + "/base")
        self.sides = {}
        for name in ("pairs", "held-out-pairs"):
            both = [last_answers(read_shards("%s/%s-%s" % (work, name, side), "train"), s["seq_len"], marks)
                    for side in ("chosen", "rejected")]
            self.sides[name] = tuple(np.stack([a, b], 1) for a, b in zip(*both))  # [pairs, 2, seq_len]
        self.per_step, self.n, self.beta = s["batch_pairs"], len(self.sides["pairs"][0]), s["beta"]

    def logs(self, model, name, at, bf16):
        x, y = (part[at].reshape(-1, part.shape[-1]) for part in self.sides[name])
        used = int((y >= 0).any(0).nonzero()[0].max()) + 1  # the rest is padding
        return -token_losses(model, x[:, :used], y[:, :used], bf16).sum(1).view(-1, 2)

    def prepare(self, model, bf16):
        self.reference = {}
        with torch.no_grad():
            for name, (x, _) in self.sides.items():
                parts = [self.logs(model, name, np.arange(i, min(i + self.per_step, len(x))), bf16)
                         for i in range(0, len(x), self.per_step)]
                self.reference[name] = torch.cat(parts)

    def losses(self, model, name, at, bf16):
        ratio = self.logs(model, name, at, bf16) - self.reference[name][at]
        self.margin = self.beta * (ratio[:, 0] - ratio[:, 1])
        return -F.logsigmoid(self.margin)

    def loss(self, model, at, bf16):
        return self.losses(model, "pairs", np.array(at), bf16).mean()

    def validate(self, model, bf16):
        n, right, total = len(self.sides["held-out-pairs"][0]), 0, 0.0
        for i in range(0, n, self.per_step):
            total += self.losses(model, "held-out-pairs", np.arange(i, min(i + self.per_step, n)), bf16).sum().item()
            right += int((self.margin > 0).sum())
        self.accuracy = right / n
        return total / n


def mean(losses):
    """Of the scored tokens since the last line, as in tern's log."""
    return sum(x * n for x, n in losses) / sum(n for _, n in losses)


def now():
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def train(work, s, name, seed):
    torch.manual_seed(seed)
    method, bf16 = name.replace("-bf16", ""), name.endswith("-bf16")
    out = "%s/torch/%s-%d" % (work, name, seed)
    os.makedirs(out, exist_ok=True)
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    begun = now()
    data = Pairs(work, s) if method == "dpo" else Chats(work, s)
    model = load("%s/%s" % (work, BASES[method]))
    if method != "full":
        model = get_peft_model(model, LoraConfig(r=s["rank"], lora_alpha=2 * s["rank"], target_modules=MODULES,
                                                 task_type="CAUSAL_LM"))
    data.prepare(model, bf16)
    weights = [w for w in model.parameters() if w.requires_grad]
    adam = torch.optim.AdamW(weights, lr=1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    steps, log, losses, spent = s["steps"][method], open(out + "/log.jsonl", "w"), [], []
    for step in range(steps + 1):
        if step % s["valid_every"] == 0 or step == steps:
            with torch.no_grad():
                line = {"step": step, "valid_loss": data.validate(model, bf16)}
            if method == "dpo":
                line["reward_accuracy"] = data.accuracy
            print(json.dumps(line), file=log, flush=True)
        if step == steps:
            break
        start = now()
        loss = data.loss(model, order(data.n, step, data.per_step, seed), bf16)
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1)
        adam.param_groups[0]["lr"] = rate(s, s["rate"][method], steps, step + 1)
        adam.step()
        losses.append((loss.item(), data.n_scored))
        spent.append(now() - start)
        if (step + 1) % s["log_every"] == 0 or step + 1 == steps:
            print(json.dumps({"step": step + 1, "loss": mean(losses)}), file=log, flush=True)
            losses = []
    summary = {"seconds_a_step": float(np.median(spent)), "seconds": now() - begun}
    if device == "cuda":
        summary["memory"] = torch.cuda.max_memory_reserved()
    json.dump(summary, open(out + "/summary.json", "w"))
    model.save_pretrained(out + "/model")
    if method == "full":
        AutoTokenizer.from_pretrained(work + "/base").save_pretrained(out + "/model")
    print("torch", name, seed, summary, line, flush=True)


def answer(work, adapter):
    tokenizer = AutoTokenizer.from_pretrained(work + "/base", padding_side="left")
    tokenizer.pad_token = "<|endoftext|>"
    model = PeftModel.from_pretrained(load(work + "/base"), adapter).eval()
    requests = [json.loads(line) for line in open(work + "/requests.jsonl")]
    texts = [tokenizer.apply_chat_template(r["messages"], tools=r["tools"], add_generation_prompt=True, tokenize=False)
             for r in requests]
    x = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(device)
    with torch.no_grad():
        y = model.generate(input_ids=x["input_ids"], attention_mask=x["attention_mask"], max_new_tokens=64,
                           do_sample=False, eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
                           pad_token_id=tokenizer.pad_token_id)
    with open(work + "/answers.jsonl", "w") as f:
        for prompt, row in zip(texts, y[:, x["input_ids"].shape[1] :]):
            said = tokenizer.decode(row, skip_special_tokens=True)
            print(json.dumps({"prompt": prompt, "answer": said}), file=f)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("work")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--methods", default="lora,qlora,full,dpo")
    p.add_argument("--answer")
    a = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if a.answer:
        return answer(a.work, a.answer)
    s = json.load(open(a.work + "/settings.json"))
    for method in a.methods.split(","):
        train(a.work, s, method, a.seed)


if __name__ == "__main__":
    main()
