#!/usr/bin/env python3
"""Fine-tuning by tern and by PyTorch beside each other: the table in docs/finetune.md.

    compare.py TEXTS WORK [--tern build/tern] [--device webgpu] [--seconds 45] [--small | --tiny] [--no-torch]

TEXTS is a folder of plain text (20 MB were stories and textbooks), of which, with the records of chats.py, a vocabulary
and a base in the shape of a Qwen3 are made: 12 layers of 512, 42 million parameters, trained for at most --seconds.
`tern train` and torch_runs.py then tune it on 500 chats with tools: an adapter, the same beside a base of 4 bits, all
weights, and preferences after these, each with three seeds; the first of them alone, for time and memory. Last, tern
answers 100 requests that no run has seen with what came out, and transformers with tern's adapter. In all 6 minutes of a
data centre's GPU.

Needs numpy; a GPU (nvidia-smi says how much of it is taken) or --device cpu with --small, 3 layers of 128; and torch,
transformers and peft without --no-torch. WORK gets logs and results.json. --tiny only tries the parts.
"""
import argparse, http.client, json, os, re, shutil, signal, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../../tests/reference"))
from safetensors_np import write_safetensors

METHODS = ("lora", "qlora", "full", "dpo")
SHAPE = {"layers": 12, "width": 512, "heads": 8, "kv": 4, "head": 64, "ff": 1536, "vocab": 8192}
SMALL = {"layers": 3, "width": 128, "heads": 4, "kv": 2, "head": 32, "ff": 384, "vocab": 2048}
TINY = {"layers": 2, "width": 64, "heads": 4, "kv": 2, "head": 16, "ff": 128, "vocab": 2048}
SETTINGS = {"seq_len": 224, "batch": 16, "batch_pairs": 16, "rank": 16, "warmup": 10, "beta": 0.1, "valid_every": 20,
            "log_every": 10, "rate": {"lora": 2e-3, "qlora": 2e-3, "full": 5e-4, "dpo": 2e-4},
            "steps": {"lora": 100, "qlora": 100, "full": 100, "dpo": 40}}


class Machine:
    """Runs commands, with their logs in WORK/log, and watches the GPU's memory."""
    def __init__(self, a):
        self.a, self.used, self.n = a, [], 0
        os.makedirs(a.work + "/log", exist_ok=True)
        self.smi = None
        if shutil.which("nvidia-smi"):
            ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "100"]
            self.smi = subprocess.Popen(ask, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        for line in self.smi.stdout:
            if line.strip().isdigit():
                self.used.append(int(line))

    def run(self, name, command, limit=600):
        """What it took: seconds, and MiB of the GPU's memory beyond those before."""
        begun, first = time.time(), len(self.used)
        before = self.used[-1] if self.used else 0
        with open("%s/log/%s" % (self.a.work, name), "w") as log:
            child = subprocess.Popen([str(c) for c in command], stdout=log, stderr=subprocess.STDOUT)
            try:
                child.wait(limit)
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGINT)  # leaves a checkpoint
                child.wait(60)
        took = time.time() - begun
        print("%6.1f s  %s%s" % (took, name, ": exit status %d" % child.returncode if child.returncode else ""), flush=True)
        return {"seconds": took, "memory": max(self.used[first:], default=0) - before}

    def tern(self, name, *command, limit=600):
        return self.run(name, [self.a.tern, *command], limit)

    def torch(self, name, *command):
        return self.run(name, [sys.executable, HERE + "/torch_runs.py", self.a.work, *command])


# ---- The base ----------------------------------------------------------------------------------

def first_weights(shape, folder):
    """A Qwen3 that has learnt nothing."""
    r, w = np.random.default_rng(1), shape["width"]
    normal = lambda rows, cols, deviation=0.02: (r.standard_normal((rows, cols)) * deviation).astype(np.float32)
    ones = lambda n: np.ones(n, np.float32)
    q, kv, out = shape["heads"] * shape["head"], shape["kv"] * shape["head"], 0.02 / (2 * shape["layers"]) ** 0.5
    tensors = {"model.embed_tokens.weight": normal(shape["vocab"], w), "model.norm.weight": ones(w)}
    for i in range(shape["layers"]):
        layer = {"self_attn.q_proj": normal(q, w), "self_attn.k_proj": normal(kv, w), "self_attn.v_proj": normal(kv, w),
                 "self_attn.o_proj": normal(w, q, out), "mlp.gate_proj": normal(shape["ff"], w),
                 "mlp.up_proj": normal(shape["ff"], w), "mlp.down_proj": normal(w, shape["ff"], out),
                 "self_attn.q_norm": ones(shape["head"]), "self_attn.k_norm": ones(shape["head"]),
                 "input_layernorm": ones(w), "post_attention_layernorm": ones(w)}
        tensors.update({"model.layers.%d.%s.weight" % (i, k): v for k, v in layer.items()})
    write_safetensors(folder + "/model.safetensors", tensors)
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": shape["layers"],
              "hidden_size": w, "intermediate_size": shape["ff"], "num_attention_heads": shape["heads"],
              "num_key_value_heads": shape["kv"], "head_dim": shape["head"], "vocab_size": shape["vocab"],
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": True, "attention_bias": False, "bos_token_id": 0, "eos_token_id": 2,
              "torch_dtype": "float32"}
    json.dump(config, open(folder + "/config.json", "w"))
    tokens = json.load(open(folder + "/tokenizer_config.json"))
    tokens.update(eos_token="<|im_end|>", chat_template=open(HERE + "/template.jinja").read())
    json.dump(tokens, open(folder + "/tokenizer_config.json", "w"))


def make_base(m, a, shape):
    work, plain = a.work, [a.texts, a.work + "/records.txt"]
    m.tern("tokenizer", "data", "tokenizer", *plain, work + "/chats.jsonl", "-o", work + "/first", "--vocab", shape["vocab"],
           "--no-bos")
    first_weights(shape, work + "/first")
    m.tern("base-data", "data", "build", *plain, "--tokenizer", work + "/first", "-o", work + "/base-shards",
           "--weights", "1,%d" % (1 if a.tiny else 3))
    size = ["-n", a.base_steps, *({
        TINY["width"]: ["--batch-tokens", 1024, "--seq-len", 128], SMALL["width"]: ["--batch-tokens", 4096, "--seq-len", 256],
        SHAPE["width"]: ["--batch-tokens", 16384, "--seq-len", 512, "--bf16"]}[shape["width"]])]
    m.tern("base", "train", "--init", work + "/first", "--data", work + "/base-shards", "-o", work + "/base-run",
           "--rate", 1.5e-3, "--warmup", 30, "--weight-decay", 0.1, "--device", a.device, "--no-best",
           "--checkpoint-every", 100000, "--valid-every", 200, *size, limit=a.seconds)
    step = sorted(f for f in os.listdir(work + "/base-run") if re.fullmatch(r"step-\d+\.gguf", f))[-1]
    m.tern("float", "convert", "%s/base-run/%s" % (work, step), work + "/base.gguf", "--type", "f32")
    m.tern("coded", "convert", work + "/base.gguf", work + "/coded.gguf", "--type", "q4_0", "--head-type", "f32")
    for name in ("base", "coded"):
        m.tern(name + "-folder", "convert", "%s/%s.gguf" % (work, name), "%s/%s" % (work, name), "--type", "f32")


# ---- What is learnt ----------------------------------------------------------------------------

def build_shards(m, work):
    build = lambda text, out, *more: m.tern("data-" + out, "data", "build", "%s/%s.jsonl" % (work, text), "--tokenizer",
                                            work + "/base", "-o", "%s/%s" % (work, out), "--dedup", "none", *more)
    build("chats", "shards", "--held-out", work + "/held-out.jsonl")
    for name in ("pairs", "held-out-pairs"):  # for PyTorch; tern reads the pairs themselves
        for side in ("chosen", "rejected"):
            with open("%s/%s-%s.jsonl" % (work, name, side), "w") as f:
                for pair in map(json.loads, open("%s/%s.jsonl" % (work, name))):
                    print(json.dumps({"messages": pair["prompt"] + pair[side], "tools": pair["tools"]}), file=f)
            build("%s-%s" % (name, side), "%s-%s" % (name, side), "--valid", 0)


def tern_run(m, a, s, method, seed, bf16=False):
    name = "%s%s-%d" % (method, "-bf16" if bf16 else "", seed)
    init = {"qlora": "coded", "dpo": "tuned"}.get(method, "base")
    command = ["train", "--init", "%s/%s.gguf" % (a.work, init), "-o", "%s/tern/%s" % (a.work, name), "--seed", seed,
               "-n", s["steps"][method], "--rate", s["rate"][method], "--warmup", s["warmup"], "--seq-len", s["seq_len"],
               "--valid-every", s["valid_every"], "--log-every", s["log_every"], "--checkpoint-every", 100000,
               "--no-best", "--device", a.device]
    if method == "dpo":
        command += ["--preferences", a.work + "/pairs.jsonl", "--held-out", a.work + "/held-out-pairs.jsonl",
                    "--batch-pairs", s["batch_pairs"], "--beta", s["beta"]]
    else:
        command += ["--data", a.work + "/shards", "--assistant-only", "--packing", "none", "--batch-tokens",
                    s["batch"] * s["seq_len"]]
    if method != "full":
        command += ["--lora", s["rank"], "--peft"]
    took = m.tern("tern-" + name, *command, *(["--bf16"] if bf16 else []))
    json.dump(took, open("%s/tern/%s/summary.json" % (a.work, name), "w"))


def last_step(folder, steps):
    return "%s/step-%08d.gguf" % (folder, steps)


# ---- Requests that were not taught -------------------------------------------------------------

def call_in(text):
    found = re.search(r"<tool_call>\s*(\{.*\})\s*</tool_call>", text, re.S)
    try:
        return json.loads(found.group(1)) if found else None
    except ValueError:
        return None


def score(requests, calls):
    """How many have the right tool, and how many the right arguments, too."""
    tools = [isinstance(c, dict) and c.get("name") == r["name"] for r, c in zip(requests, calls)]
    whole = [ok and c.get("arguments") == r["arguments"] for ok, r, c in zip(tools, requests, calls)]
    return sum(tools), sum(whole)


def post(port, path, **body):
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    server.request("POST", path, json.dumps({"temperature": 0, "max_tokens": 64, **body}),
                   {"Content-Type": "application/json"})
    answer = json.loads(server.getresponse().read())
    server.close()
    return answer


def ask(port, request):
    answer = post(port, "/v1/chat/completions", messages=request["messages"], tools=request["tools"])
    try:
        message = answer["choices"][0]["message"]
        for call in message.get("tool_calls") or []:
            f = call["function"]
            return {"name": f["name"], "arguments": json.loads(f["arguments"])}
        return call_in(message.get("content") or "")
    except (KeyError, ValueError):
        return None


def is_ready(port):
    """It listens before its model is loaded."""
    try:
        server = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        server.request("GET", "/health")
        return server.getresponse().status == 200
    except OSError:
        return False


def go_on(port, said):
    """What is said to a prompt as it is: no call is held to its tool's schema."""
    return post(port, "/v1/completions", prompt=said["prompt"])["choices"][0]["text"]


def of_server(a, port, model, lora, asked, items):
    """asked(port, item) of each, by a server of its own."""
    log = open("%s/log/serve-%d" % (a.work, port), "w")
    server = subprocess.Popen([a.tern, "serve", model, "--port", str(port), "-t", str(a.threads), "-c", "16384",
                               *(["--lora", lora] if lora else [])], stdout=log, stderr=subprocess.STDOUT)
    try:
        while not is_ready(port):
            if server.poll() is not None:
                raise RuntimeError("tern serve has ended")
            time.sleep(0.1)
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(lambda r: asked(port, r), items))
    finally:
        server.terminate()
        server.wait()


def answers_of(a, port, model, lora):
    requests = [json.loads(line) for line in open(a.work + "/requests.jsonl")]
    try:
        return score(requests, of_server(a, port, model, lora, ask, requests))
    except Exception as e:
        print(model, lora, e, flush=True)
        return 0, 0


def beside_transformers(a, s):
    """Both say the same with one adapter: of how many requests the whole texts are equal, and how many calls are right."""
    said = [json.loads(line) for line in open(a.work + "/answers.jsonl")]
    requests = [json.loads(line) for line in open(a.work + "/requests.jsonl")]
    adapter = last_step("%s/tern/lora-%d" % (a.work, a.seeds[0]), s["steps"]["lora"])
    texts = of_server(a, 18300, a.work + "/base.gguf", adapter, go_on, said)
    same = sum(text == t["answer"] for text, t in zip(texts, said))
    print("with tern's lora %d, transformers and tern say the same to %d of %d requests" % (a.seeds[0], same, len(said)))
    return score(requests, [call_in(t["answer"]) for t in said]), score(requests, [call_in(t) for t in texts])


def models_of(a, s, side, seeds):
    """Of each run its name, model and adapter."""
    found = []
    for method in METHODS:
        for seed in seeds:
            folder = "%s/%s/%s-%d" % (a.work, side, method, seed)
            result = last_step(folder, s["steps"][method]) if side == "tern" else folder + "/model"
            if not os.path.exists(result):
                continue
            name, base = "%s %s %d" % (side, method, seed), {"qlora": "coded", "dpo": "tuned"}.get(method, "base")
            found.append((name, result, None) if method == "full" else (name, "%s/%s.gguf" % (a.work, base), result))
    return found


def ask_all(a, models, port):
    """By name of the models how many answers are right, four models at a time."""
    with ThreadPoolExecutor(4) as pool:
        jobs = {name: pool.submit(answers_of, a, port + i, model, lora) for i, (name, model, lora) in enumerate(models)}
        return {name: job.result() for name, job in jobs.items()}


# ---- The table ---------------------------------------------------------------------------------

def curve(folder):
    lines = [json.loads(line) for line in open(folder + "/log.jsonl")]
    pick = lambda key: {l["step"]: l[key] for l in lines if l.get(key) is not None and "step" in l}
    speeds = sorted(l.get("tokens_per_second") or l.get("pairs_per_second") or 0 for l in lines)
    return {"loss": pick("loss"), "valid": pick("valid_loss"), "right": pick("reward_accuracy"),
            "speed": speeds[-3] if len(speeds) > 2 else 0}  # of intervals without validation


def spread(values, form="%.4f"):
    if not values:
        return "-"
    return (form + " (" + form + "-" + form + ")") % (float(np.mean(values)), min(values), max(values))


def table(a, s, told):
    results = {"told": told, "curves": {}, "summaries": {}}
    print("| run | by | loss, last steps | held out | s a step | s in all | GPU MiB | right tool, whole call |\n|---|---|---|---|---|---|---|---|")
    for method in [*METHODS, "full-bf16"]:
        for side in ("tern", "torch"):
            folders = ["%s/%s/%s-%d" % (a.work, side, method, seed) for seed in a.seeds]
            folders = [f for f in folders if os.path.exists(f + "/summary.json")]
            if not folders:
                continue
            curves, first = [curve(f) for f in folders], json.load(open(folders[0] + "/summary.json"))
            per_step = s["batch_pairs"] if method == "dpo" else s["batch"] * s["seq_len"]
            if "seconds_a_step" not in first:
                first["seconds_a_step"] = per_step / curves[0]["speed"] if curves[0]["speed"] else 0
            last = lambda c, key: c[key][max(c[key])]
            right = [told[n] for n in told if n.startswith("%s %s " % (side, method))]
            print("| %s | %s | %s | %s | %.3f | %.1f | %d | %s, %s |" % (
                method, side, spread([last(c, "loss") for c in curves]), spread([last(c, "valid") for c in curves]),
                first["seconds_a_step"], first["seconds"], first.get("memory", 0) / (1 if side == "tern" else 2**20),
                spread([r[0] for r in right], "%.0f"), spread([r[1] for r in right], "%.0f")))
            for f, c in zip(folders, curves):
                results["curves"][f[len(a.work) + 1 :]] = c
            results["summaries"]["%s %s" % (side, method)] = first
    json.dump(results, open(a.work + "/results.json", "w"))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("texts")
    p.add_argument("work")
    p.add_argument("--tern", default="build/tern")
    p.add_argument("--device", default="webgpu")
    p.add_argument("--seconds", type=int, default=45, help="of the base's training at most")
    p.add_argument("--base-steps", type=int, default=400)
    p.add_argument("--seeds", type=lambda x: [int(i) for i in x.split(",")], default=[1, 2, 3])
    p.add_argument("--threads", type=int, default=4)
    p.add_argument("--small", action="store_true", help="3 layers of 128: for a CPU")
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--no-torch", action="store_true")
    return p.parse_args()


def main():
    a = arguments()
    a.tern = os.path.abspath(a.tern)
    s = json.loads(json.dumps(SETTINGS))
    if a.tiny:
        a.base_steps = 20
    if a.tiny:
        s.update(batch=4, batch_pairs=4, rank=4, valid_every=4, log_every=1, steps={k: 6 for k in METHODS})
    if a.small:
        s["steps"] = {"lora": 300, "qlora": 300, "full": 300, "dpo": 40}
    m = Machine(a)
    os.makedirs(a.work + "/tern", exist_ok=True)
    json.dump(s, open(a.work + "/settings.json", "w"))
    small = ["--chats", 40, "--held-out", 8, "--pairs", 16, "--records", 2000] if a.tiny else []
    m.run("chats", [sys.executable, HERE + "/chats.py", a.work, *small])
    make_base(m, a, TINY if a.tiny else SMALL if a.small else SHAPE)
    build_shards(m, a.work)
    alone, others = a.seeds[0], a.seeds[1:]
    for method in ("lora", "qlora", "full"):
        tern_run(m, a, s, method, alone)
    m.tern("tuned", "convert", last_step("%s/tern/full-%d" % (a.work, alone), s["steps"]["full"]), a.work + "/tuned.gguf",
           "--type", "f32")
    m.tern("tuned-folder", "convert", a.work + "/tuned.gguf", a.work + "/tuned", "--type", "f32")
    tern_run(m, a, s, "dpo", alone)
    if not a.tiny and not a.small:
        tern_run(m, a, s, "full", alone, bf16=True)
    if not a.no_torch:
        m.torch("torch-%d" % alone, "--seed", alone, *([] if a.tiny else ["--methods", ",".join(METHODS) + ",full-bf16"]))
        table(a, s, {})
    with ThreadPoolExecutor(8) as pool:  # the other seeds: only their losses count
        for seed in others:
            if not a.no_torch:
                pool.submit(m.torch, "torch-%d" % seed, "--seed", seed)
            for method in METHODS:
                pool.submit(tern_run, m, a, s, method, seed)
        if not a.no_torch:
            pool.submit(m.torch, "torch-answers", "--answer", "%s/tern/lora-%d/peft" % (a.work, alone))
        told = ask_all(a, [("base", a.work + "/base.gguf", None), *models_of(a, s, "tern", [alone]),
                           *models_of(a, s, "torch", [alone])], 18100)
    told.update(ask_all(a, models_of(a, s, "tern", others), 18200))
    if os.path.exists(a.work + "/answers.jsonl"):
        told["transformers, unconstrained"], told["tern, unconstrained"] = beside_transformers(a, s)
    for name, right in told.items():
        print(name, *right)
    table(a, s, told)


if __name__ == "__main__":
    main()
