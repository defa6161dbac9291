"""A model that says what it is told to: for tests of what stands around a model.

    write(path, template, {"<|a|>": "What follows the token <|a|>."}, controls=["<|mark|>"])
    python3 tests/parrot.py FILE     the one that asks for the weather

Each script's words are tokens that appear nowhere else, each token's successor is fixed, and the network is a table of
successors: embeddings point in different directions, the one layer adds nothing, and a row of the output head points
where the token before it does. The template ends with one of the scripts' tokens to choose what is said. A script of
bytes is said byte by byte, in tokens that need not be whole characters.
"""
import random
import struct
import sys

N_EMBD, N_FF = 64, 32


def pieces_of(text, controls, used):
    """The text in pieces that are not used yet; controls are pieces of their own."""
    pieces, choices = [], []  # choices: of each piece, the lengths that were not tried
    while text:
        control = next((c for c in controls if text.startswith(c)), None)
        if control is None:
            until = min([text.find(c) for c in controls if c in text] + [len(text)])
            sizes = [n for n in range(2, until + 1) if text[:n] not in used and until - n != 1]
            sizes = sizes or [n for n in [until] if text not in used]
        else:
            sizes = [] if control in used else [len(control)]
        choices.append(sizes)
        while not choices[-1]:  # another length of a piece before it
            choices.pop()
            assert choices, "the script needs %r twice" % text
            used.remove(pieces[-1])
            text = pieces.pop() + text
        size = choices[-1].pop(0)
        pieces.append(text[:size])
        used.add(text[:size])
        text = text[size:]
    return pieces


def byte_names():
    """How byte-level vocabularies spell bytes: printable ones as themselves, others from U+0100 on."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    names, n = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in names:
            names[b], n = chr(256 + n), n + 1
    return [names[b] for b in range(256)]


def string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def strings(items):
    return struct.pack("<IQ", 8, len(items)) + b"".join(map(string, items))


def integers(items):
    return struct.pack("<IQ", 5, len(items)) + struct.pack("<%di" % len(items), *items)


def write(path, template, scripts, controls=(), end="<|end|>", named=None):
    """named: metadata that name tokens, by their texts."""
    names = byte_names()
    controls = list(controls)
    texts, kinds, used = list(names), [1] * 256, set()
    followed_by = {}  # a token's id, and that of the one after it
    for text in [end] + list(scripts):
        texts.append(text)
        kinds.append(3)
    for c in controls:
        texts.append(c)
        kinds.append(3)
    for sign, script in scripts.items():
        before = texts.index(sign)
        if isinstance(script, bytes):
            for byte in script:
                followed_by[before] = before = byte
            followed_by[before] = 256
            continue
        for piece in pieces_of(script, controls, used):
            if piece not in controls:
                texts.append(piece)
                kinds.append(4)  # as it is written, not in the bytes' spelling
            followed_by[before] = before = texts.index(piece)
        followed_by[before] = 256
    rng = random.Random(1)
    points = []
    for _ in texts:
        v = [rng.gauss(0, 1) for _ in range(N_EMBD)]
        length = sum(x * x for x in v) ** 0.5
        points.append([x / length for x in v])
    head = [[0.0] * N_EMBD for _ in texts]
    for before, after in followed_by.items():
        head[after] = [h + 10 * x for h, x in zip(head[after], points[before])]  # the end follows several
    zeros = lambda *shape: ([0.0] * (shape[0] * (shape[1] if len(shape) > 1 else 1)), shape)
    flat = lambda rows: ([x for row in rows for x in row], (N_EMBD, len(rows)))
    tensors = {"token_embd.weight": flat(points), "output.weight": flat(head),
               "output_norm.weight": ([1.0] * N_EMBD, (N_EMBD,)), "blk.0.attn_norm.weight": ([1.0] * N_EMBD, (N_EMBD,)),
               "blk.0.ffn_norm.weight": ([1.0] * N_EMBD, (N_EMBD,))}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        tensors["blk.0.%s.weight" % name] = zeros(N_EMBD, N_EMBD)
    tensors["blk.0.ffn_gate.weight"] = tensors["blk.0.ffn_up.weight"] = zeros(N_EMBD, N_FF)
    tensors["blk.0.ffn_down.weight"] = zeros(N_FF, N_EMBD)
    u32 = lambda v: struct.pack("<I", v)
    meta = [pair("general.architecture", 8, string("llama")), pair("general.name", 8, string("parrot")),
            pair("llama.block_count", 4, u32(1)), pair("llama.context_length", 4, u32(4096)),
            pair("llama.embedding_length", 4, u32(N_EMBD)), pair("llama.feed_forward_length", 4, u32(N_FF)),
            pair("llama.attention.head_count", 4, u32(1)), pair("llama.attention.head_count_kv", 4, u32(1)),
            pair("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
            pair("tokenizer.ggml.model", 8, string("gpt2")), pair("tokenizer.ggml.pre", 8, string("gpt-2")),
            pair("tokenizer.ggml.tokens", 9, strings(texts)), pair("tokenizer.ggml.token_type", 9, integers(kinds)),
            pair("tokenizer.ggml.merges", 9, strings([])), pair("tokenizer.ggml.eos_token_id", 4, u32(256)),
            pair("tokenizer.chat_template", 8, string(template))]
    meta += [pair(key, 4, u32(texts.index(text))) for key, text in (named or {}).items()]
    out, at = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta)) + b"".join(meta), 0
    for name, (values, shape) in tensors.items():
        out += string(name) + struct.pack("<I", len(shape)) + struct.pack("<%dQ" % len(shape), *shape)
        out += struct.pack("<IQ", 0, at)
        at += (4 * len(values) + 31) // 32 * 32
    out += bytes(-len(out) % 32)
    for values, _ in tensors.values():
        raw = struct.pack("<%df" % len(values), *values)
        out += raw + bytes(-len(raw) % 32)
    with open(path, "wb") as f:
        f.write(out)


# Templates that end with a token that chooses what is said: what follows a tool's result, a question if there are
# tools, and else.
TURNS = """{% for t in tools or [] %}[{{ t.function.name }}:{{ t.function.parameters.properties | join(',') }}]{% endfor %}\
{% for m in messages %}{{ m.role }}={{ m.content }}{% if m.reasoning_content %}~{{ m.reasoning_content }}{% endif %}\
{% for c in m.tool_calls or [] %}({{ c.function.name }} {{ c.function.arguments.town }}){% endfor %};{% endfor %}\
{% if not add_generation_prompt %}{% elif messages[-1].role == 'tool' %}<|after|>\
{% elif tools and enable_thinking is defined and not enable_thinking %}<|once|>{% elif tools %}<|call|>\
{% elif enable_thinking is defined and enable_thinking %}<|think|><think>\n{% else %}<|else|>{% endif %}"""
QWEN = "{# <tool_call> </think> #}" + TURNS
# LFM2's marks are control tokens, which do not show in texts.
LFM = "{# <|tool_call_start|> #}" + TURNS
SCRIPTS = {
    "<|call|>": "<think>\nRain?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"Ghent\"}}\n"
                "</tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>",
    "<|once|>": "<tool_call>{\"name\": \"clock\", \"arguments\": {}}</tool_call>",
    "<|after|>": "It is dry in Ghent.",
    "<|else|>": "Good day.",
}

if __name__ == "__main__":
    write(sys.argv[1], QWEN, SCRIPTS)
