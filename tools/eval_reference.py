#!/usr/bin/env python3
"""What `tern eval` is compared with: transformers in float32 and lm-evaluation-harness's rules,
written down a second time (docs/evaluation.md has the figures).

    eval_reference.py choice MODEL DATA LIMIT > scores.jsonl   # DATA: folder of TASK.jsonl, blimp/
    eval_reference.py ppl MODEL TEXT WINDOW STRIDE

MODEL is a Hugging Face folder with tokenizer.json, or with SentencePiece's tokenizer.model.
Prints for each item the log-probabilities, for each task the metrics. Needs torch, transformers."""
import glob, json, math, os, sys
import torch
import transformers


class Model:
    def __init__(self, path):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.net = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        self.net = self.net.to(self.device).eval()
        self.context = self.net.config.max_position_embeddings
        if os.path.exists(path + "/tokenizer.model"):
            import sentencepiece
            sp = sentencepiece.SentencePieceProcessor(model_file=path + "/tokenizer.model")
            self.bos, self.begin = sp.bos_id(), [sp.bos_id()]
            self.plain = sp.encode
        else:
            tok = transformers.PreTrainedTokenizerFast(tokenizer_file=path + "/tokenizer.json")
            plain = lambda s: tok.encode(s, add_special_tokens=False)
            self.plain = plain
            self.begin = tok.encode("a")[: -len(plain("a"))]  # what the tokenizer itself adds
            self.bos = self.net.config.bos_token_id

    def encode(self, text):
        return self.begin + self.plain(text)

    def logprobs(self, ids):  # [n - 1, n_vocab]: row i is about ids[i + 1]
        with torch.no_grad():
            out = self.net(torch.tensor([ids[:-1]], device=self.device)).logits[0]
        return torch.log_softmax(out.double(), -1)

    def score(self, context, continuation):
        if context == "":
            c, t = [self.bos], self.plain(continuation)
        else:
            spaces = len(context) - len(context.rstrip())
            if spaces:
                context, continuation = context[:-spaces], context[-spaces:] + continuation
            c = self.encode(context)
            t = self.encode(context + continuation)[len(c):]
        rows = self.logprobs((c + t)[-(self.context + 1):])[-len(t):]
        target = torch.tensor(t, device=self.device)
        picked = rows.gather(1, target[:, None])[:, 0]
        return picked.sum().item(), bool((rows.argmax(-1) == target).all())


# Each gives (contexts, continuations, index of the right one, texts whose lengths normalise).
def query(context):
    def make(d):
        return [context(d["query"])] * len(d["choices"]), d["choices"], d["gold"], d["choices"]
    return make

def winogrande(d):
    n = len(d["context_options"])
    return d["context_options"], [d["continuation"]] * n, d["gold"], d["context_options"]

TASKS = {
    "hellaswag": query(lambda q: q),
    "arc_easy": query(lambda q: q + "\nAnswer:"),
    "arc_challenge": query(lambda q: q + "\nAnswer:"),
    "piqa": query(lambda q: q.removesuffix("\n") + "\nAnswer:"),
    "winogrande": winogrande,
    "boolq": query(lambda q: q.removeprefix("Passage: ") + "\nAnswer:"),
    "openbook_qa": query(lambda q: q),
    "lambada_openai": lambda d: ([d["context"]], [d["continuation"]], 0, [d["continuation"]]),
    "blimp": lambda d: ([""] * 2, [d["sentence_good"], d["sentence_bad"]], 0, ["x", "x"]),
}


def stderr(x):
    m = sum(x) / len(x)
    return math.sqrt(sum((v - m) ** 2 for v in x) / (len(x) - 1) / len(x))


def run_task(model, task, path, limit):
    columns = {"acc": [], "acc_norm": [], "acc_bytes": [], "nll": []}
    name = os.path.basename(path)
    for i, line in enumerate(open(path)):
        if i == limit:
            break
        contexts, continuations, gold, texts = TASKS[task](json.loads(line))
        pairs = [model.score(c, " " + t) for c, t in zip(contexts, continuations)]
        lls = [p[0] for p in pairs]
        best = lambda xs: max(range(len(xs)), key=lambda k: (xs[k], -k))
        columns["acc"].append(float(pairs[0][1] if task == "lambada_openai" else best(lls) == gold))
        columns["acc_norm"].append(float(best([l / len(t) for l, t in zip(lls, texts)]) == gold))
        columns["acc_bytes"].append(
            float(best([l / len(t.encode()) for l, t in zip(lls, texts)]) == gold))
        columns["nll"].append(-lls[0])
        print(json.dumps({"file": name, "item": i, "logprobs": lls, "greedy": [p[1] for p in pairs]}))
    out = {"file": name, "metrics": {k: [sum(v) / len(v), stderr(v)] for k, v in columns.items()}}
    if task == "lambada_openai":
        out["perplexity"] = math.exp(out["metrics"]["nll"][0])
    print(json.dumps(out), flush=True)


def run_ppl(model, path, window, stride):
    ids = model.encode(open(path, newline="").read())
    nll, n, done, begin = [], 0, 0, 0
    doc_sum = doc_n = 0.0
    while done < len(ids):
        end = min(begin + window, len(ids))
        rows = model.logprobs(ids[begin:end])
        target = torch.tensor(ids[begin + 1:end], device=model.device)
        picked = -rows.gather(1, target[:, None])[:, 0]
        new = end - done
        picked = picked[-new:].tolist()  # of the first window: all but its first token
        nll += picked
        # The documentation's script: the mean of each window, weighted by one token too few in
        # every window but the first.
        weight = new - 1
        doc_sum += sum(picked) / len(picked) * weight
        doc_n += weight
        done, begin = end, begin + stride
    m = sum(nll) / len(nll)
    print(json.dumps({"n_tokens": len(ids), "n_scored": len(nll), "nll": m, "nll_stderr": stderr(nll),
                      "perplexity": math.exp(m), "perplexity_of_the_script": math.exp(doc_sum / doc_n)}))


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = False
    model = Model(sys.argv[2])
    if sys.argv[1] == "ppl":
        run_ppl(model, sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        folder, limit = sys.argv[3], int(sys.argv[4])
        for task in TASKS:
            paths = sorted(glob.glob(f"{folder}/{task}/*.jsonl")) or [f"{folder}/{task}.jsonl"]
            for path in paths:
                run_task(model, task, path, limit)
