// Writes tests/oracles/tokenizers: small vocabularies of every kind that tern reads, and the ids that
// Hugging Face's own tokenizers (the Rust library, as npm has it) give for texts that are hard to cut.
//
//   npm install tokenizers@0.23.2
//   node tests/reference/peers/tokenizers.cjs build/tern      (without a program: splits.json alone)
//
// Vocabularies are learnt from source.txt, a copy of some documentation as it once was.
// NAME.json is the tokenizer, NAME.ids.json has [ids, ids with BOS, decoded text] of each text.
// splits.json has, for names of tokenizer.ggml.pre, the lengths (in characters) of the pieces into
// which the expressions of that model's own tokenizer.json cut each text.
const { Tokenizer } = require("tokenizers");
const { execFileSync } = require("child_process");
const fs = require("fs"), os = require("os"), path = require("path");

const out = path.join(__dirname, "..", "..", "oracles", "tokenizers");
const tern = process.argv[2], sources = [path.join(out, "source.txt")];

// ---- Texts -------------------------------------------------------------------------------------

const texts = [
    "", " ", "  ", "   a", "a   ", "\n", "\n\n", " \n", "\n ", "\t\t x\t", "\r\n\r\n", " \r\n \n\n  b", "\u00a0x\u3000y",
    "Once upon a time there was a small bear.", " Once upon", "once  upon   a    time", "The model's weights aren't the file's.",
    "I'M HERE, YOU'LL SEE; WE'VE 'RE 'd 'S 'Tis", "don\u2019t", "x'sy 'Ve it'S", "1", "12", "123", "1234", "1234567 8 90,123.45e-6",
    "\u0661\u0662\u0663\u0664 \u00bd \u2167 \u0967\u0968\u0969\u096a", "v1.2.3-rc4+5", "a1b22c333d4444", "3.14159 and 2,718,281",
    "!", "!!", "...", "\u2026", "?!?!", "(a)[b]{c}<d>", "a-b_c/d\\e|f", "$5.00 #1 50% @me a&b", "\"quoted\" 'single' `code`",
    "if (x[i] != NULL && y->z >= 0) { return ~x ^ 0x1F; } // done\n", "def f(a, b=2):\n    return a ** b\n\n\n", "\tfor (;;)\n\t\t;\n",
    "<div class=\"a\">&amp;</div>", "https://example.org/a?b=c&d=e#f", "me@example.org", "C:\\temp\\new.txt", "{\"k\": [1, 2.5, null]}",
    "na\u00efve caf\u00e9 \u00c5ngstr\u00f6m", "nai\u0308ve cafe\u0301 A\u030angstro\u0308m", "\u1e9e \u00df \u0130 \u0131 \ufb01 \u01c4",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u3053\u3093\u306b\u3061\u306f\u3001\u4e16\u754c\u30ab\u30bf\u30ab\u30ca", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
    "\u1100\u1161\u11a8 \uac01", "abc\u4e2d\u6587def 123\u5e74", "\ud83d\ude00", "a\ud83d\ude00b \ud83d\udc4d\ud83c\udffd",
    "\ud83d\udc68\u200d\ud83d\udc69\u200d\ud83d\udc67", "\ud83c\uddf3\ud83c\uddf4\ud83c\uddf8\ud83c\uddea", "\u2764\ufe0f \u00a9 \u2122 \u20ac \u221e \u2260",
    "\ud835\udcd0\ud835\udcd1 \ud834\udd1e", "\u200b\u200c\u200d\ufeff", "\u202eevil\u202c", "\u0000\u0001\u001f\u007f", "a\u0000b", "\u0080\u0085\u00ad\u2028\u2029",
    "\ue000\uf8ff\ufffd\uffff", "Z\u0351\u036b\u0343\u0359a\u0347\u0309l\u030dg\u0321o\u0322", "\u2581a \u2581 \u2581\u2581b", "a\u2581b",
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> x", "<|endoftext", "|endoftext|>", "<|endoftext|><|endoftext|>",
    "<s>", "</s> a", "x</s>", "a</s>b", "<s>x</s>y z", "<unk>", "<0x41>", "<|im_start|>user\nHi<|im_end|>\n", "a <|tool|> b", "<start_of_turn>user\nHi<end_of_turn>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ababababababababab", "the the the thethethe", "          ten", "\n\n\n\n\n\n\n\nnine",
    "supercalifragilisticexpialidocious", "CamelCaseAndsnake_case_andSHOUTING", "weights Weights WEIGHTS wEiGhTs", "e.g. i.e. etc.", "Mr. & Mrs. O\u2019Neil-Smith Jr.",
    "2026-11-22T07:00:00Z", "+47 22 33 44 55", "1st 2nd 3rd 4th", "H\u2082O x\u00b2 10\u207b\u00b3", "\u00abquoted\u00bb \u201equoted\u201c \u300cquoted\u300d",
    "tabs\tand\tspaces  \t mixed \t", "trailing newline\n", "windows\r\nline\r\nends\r\n", "\u000b\u000c", "a\u0301\u0327", "\u0327\u0301a",
];

// ---- Vocabularies ------------------------------------------------------------------------------

function byteLevel(split, ...more) {
    const file = path.join(os.tmpdir(), "tern-tokenizer-" + process.pid + ".json");
    execFileSync(tern, ["data", "tokenizer", ...sources, "-o", file, "--vocab", "640", "--split", split, ...more]);
    const t = JSON.parse(fs.readFileSync(file));
    fs.unlinkSync(file);
    return t;
}

// Merges of the most frequent pairs of symbols in words that begin with U+2581, bytes for what is rare.
function sentencePieces(special, nMerges) {
    const words = new Map(), vocab = {}, merges = [];
    const text = sources.map((f) => fs.readFileSync(f, "utf8")).join("\n");
    for (const word of text.split(/\s+/).filter((w) => /^[\x21-\x7e\u00c0-\u024f]+$/.test(w)))
        words.set(word, (words.get(word) || 0) + 1);
    let all = [...words].map(([w, n]) => [["\u2581", ...w], n]);
    for (const s of special) vocab[s] = Object.keys(vocab).length;
    for (let b = 0; b < 256; b++)
        vocab["<0x" + b.toString(16).toUpperCase().padStart(2, "0") + ">"] = Object.keys(vocab).length;
    const pieces = ["\u2581", ...new Set(all.flatMap(([w]) => w))];
    for (const c of [...new Set(pieces)].sort()) vocab[c] ??= Object.keys(vocab).length;
    while (merges.length < nMerges) {
        const counts = new Map();
        for (const [w, n] of all)
            for (let i = 0; i + 1 < w.length; i++) counts.set(w[i] + " " + w[i + 1], (counts.get(w[i] + " " + w[i + 1]) || 0) + n);
        const [best] = [...counts].reduce((a, b) => (b[1] > a[1] || (b[1] == a[1] && b[0] < a[0]) ? b : a));
        const [a, b] = best.split(" ");
        merges.push([a, b]);
        vocab[a + b] ??= Object.keys(vocab).length;
        for (const entry of all) {
            const w = entry[0];
            for (let i = 0; i + 1 < w.length; i++) if (w[i] == a && w[i + 1] == b) w.splice(i, 2, a + b);
        }
    }
    // Runs of spaces, as SentencePiece has them.
    for (const [a, b] of [["\u2581", "\u2581"], ["\u2581\u2581", "\u2581\u2581"]]) {
        merges.push([a, b]);
        vocab[a + b] ??= Object.keys(vocab).length;
    }
    return { vocab, merges };
}

const added = (names) => names.map((content, id) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true }));
const bos = (name, id) => ({
    type: "TemplateProcessing",
    single: [{ SpecialToken: { id: name, type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
    pair: [{ Sequence: { id: "A", type_id: 0 } }, { Sequence: { id: "B", type_id: 0 } }],
    special_tokens: { [name]: { id: name, ids: [id], tokens: [name] } },
});
const replaceSpaces = { type: "Replace", pattern: { String: " " }, content: "\u2581" };
const decoders = (...more) => ({
    type: "Sequence",
    decoders: [{ type: "Replace", pattern: { String: "\u2581" }, content: " " }, { type: "ByteFallback" }, { type: "Fuse" }, ...more],
});

function pieces(special, unknown, parts) {
    const { vocab, merges } = sentencePieces(special, 280);
    return {
        version: "1.0", truncation: null, padding: null, added_tokens: added(special), normalizer: null, pre_tokenizer: null, ...parts,
        model: { type: "BPE", dropout: null, unk_token: unknown, continuing_subword_prefix: null, end_of_word_suffix: null,
                 fuse_unk: true, byte_fallback: true, ignore_merges: false, vocab, merges },
    };
}

function withPreTokenizers(t, normalizer, ...list) {
    t.normalizer = normalizer;
    t.pre_tokenizer = { type: "Sequence", pretokenizers: list };
    return t;
}

const isolated = (Regex) => ({ type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false });
const bytes = (use_regex) => ({ type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex });
const llama2 = ["<unk>", "<s>", "</s>"], gemma = ["<pad>", "<eos>", "<bos>", "<unk>"];

// None where only splits.json is wanted.
const tokenizers = !tern ? {} : {
    llama3: byteLevel("llama-bpe", "--special", "<|tool|>"),
    qwen2: withNfc(byteLevel("qwen2", "--no-bos")),
    gpt2: byteLevel("gpt-2", "--no-bos"),
    digits: withPreTokenizers(byteLevel("gpt-2"), null, { type: "Digits", individual_digits: true }, bytes(true)),
    deepseek: withPreTokenizers(byteLevel("gpt-2"), { type: "NFKC" }, isolated("[\r\n]"), isolated("\\s?\\p{L}+"), isolated("\\s?\\p{P}+"),
                                isolated("[\u4e00-\u9fa5\u3040-\u30ff\uac00-\ud7a3]+"), isolated("\\p{N}{1,3}"), bytes(false)),
    llama2: pieces(llama2, "<unk>", {
        normalizer: { type: "Sequence", normalizers: [{ type: "Prepend", prepend: "\u2581" }, replaceSpaces] },
        post_processor: bos("<s>", 1), decoder: decoders({ type: "Strip", content: " ", start: 1, stop: 0 }),
    }),
    mistral: pieces(llama2, "<unk>", {
        pre_tokenizer: { type: "Metaspace", replacement: "\u2581", prepend_scheme: "first", split: false },
        post_processor: bos("<s>", 1), decoder: decoders({ type: "Strip", content: " ", start: 1, stop: 0 }),
    }),
    gemma: pieces(gemma, "<unk>", {
        normalizer: replaceSpaces, pre_tokenizer: { type: "Split", pattern: { String: " " }, behavior: "MergedWithPrevious", invert: false },
        post_processor: bos("<bos>", 2), decoder: decoders(),
    }),
};

function withNfc(t) {
    t.normalizer = { type: "NFC" };
    return t;
}

// ---- Ways to split text, by the name that GGUF has for them --------------------------------------

const upper = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", lower = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]", head = "[^\\r\\n\\p{L}\\p{N}]?";
const short = "(?i:'s|'t|'re|'ve|'m|'ll|'d)", blanks = "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", signs = "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*";
const gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const cased = (digits, tail, u = upper, l = lower) => `${head}${u}*${l}+${tail}|${head}${u}+${l}*${tail}|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*${blanks}`;
const asciiWord = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+";
const deepseek3 = asciiWord + "| ?[\\p{P}\\p{S}]+[\\r\\n]*" + blanks;
const kana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
// The letters with case of an older Unicode: \p{L&} but for what came later.
const oldCased = String.raw`[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u1e00-\u1f15\u2c00-\u2c7b\ufb00-\ufb06\uff21-\uff3a\uff41-\uff5a]`;

const splits = {
    "deepseek-llm": ["[\r\n]", "\\s?" + oldCased + "+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "\\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}+"],
    "deepseek-coder": ["[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}"],
    "deepseek-v3": ["\\p{N}{1,3}", kana, deepseek3],
    "spark2_5": ["\\p{N}{1,3}", kana, asciiWord + "| ?[\\p{P}\\p{S}]+|[\r\n]|\\s+(?!\\S)|\\s+", "\\p{N}"],
    "kimi-k2": ["[\\p{Han}]+|" + [[`${upper}&&[^\\p{Han}]`, "*", `${lower}&&[^\\p{Han}]`, "+"], [`${upper}&&[^\\p{Han}]`, "+", `${lower}&&[^\\p{Han}]`, "*"]]
        .map(([u, m, l, n]) => `${head}[${u}]${m}[${l}]${n}${short}?`).join("|") + "|\\p{N}{1,3}" + signs + blanks],
    "chameleon": ["<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\t\n]|    |  )", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", gpt2],
    "exaone-moe": [short + "|" + head + "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"],
    "afmoe": ["\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))",
        "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+", deepseek3],
    "youtu": ["[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|" + kana, cased("\\p{N}", short + "?")],
    "jais-2": [short + "|" + head + "\\p{L}+|\\p{N}{1,3}" + signs + "|\\s*[\\r\\n]+" + [512, 256, 128, 64, 32, 16, 8, 4].map((n) => `|\\s{${n}}(?!\\S)`).join("") + "|\\s{1,2}(?!\\S)|\\s{1}"],
    "minicpm5": ["\\p{N}{1,3}", short + "|" + head + "\\p{L}+|\\p{N}+" + signs + blanks],
    "ufakzeka": [head + "\\p{L}+|\\p{N}" + signs + blanks],
    "laguna": ["[^\\n]+|[\\n]+", short + "|" + head + "\\p{L}+|\\p{N}" + signs + blanks],
    "tiny_aya": ["\\d{1,3}(?=(?:\\d{3})*\\b)", cased("\\p{N}{1,3}", short + "?")],
    "tekken": [cased("\\p{N}", "")],
    "gpt-4o": [cased("\\p{N}{1,3}", short + "?")],
    "qwen35": [short + "|" + head + "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" + blanks],
    "modern-bert": [gpt2], "falcon": ["[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2, "[0-9][0-9][0-9]"], "starcoder": ["\\p{N}", gpt2],
    "bloom": [" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"],
    "bailingmoe": ["'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"],
    "seed-coder": [short + "|" + head + "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+" + blanks],
    "superbpe": ["\\p{N}+", "(?=(\\d{3})+(?!\\d))"],
    "gemma4": ["[^\\n]+|[\\n]+"],
};

// One token a piece: nothing is in the vocabulary.
const splitter = (list) => Tokenizer.fromString(JSON.stringify({
    version: "1.0", truncation: null, padding: null, added_tokens: [], normalizer: null, post_processor: null, decoder: null,
    pre_tokenizer: { type: "Sequence", pretokenizers: list.map(isolated) }, model: { type: "WordLevel", vocab: { "[UNK]": 0 }, unk_token: "[UNK]" },
}));

async function writeSplits() {
    const all = {};
    for (const [name, list] of Object.entries(splits)) {
        const t = splitter(list), rows = [];
        for (const text of texts) rows.push((await t.encode(text, null, { addSpecialTokens: false })).getOffsets().map(([a, b]) => b - a));
        all[name] = rows;
        console.log(name, rows.reduce((n, r) => n + r.length, 0), "pieces");
    }
    const lines = Object.entries(all).map(([name, rows]) => JSON.stringify(name) + ":" + JSON.stringify(rows));
    fs.writeFileSync(path.join(out, "splits.json"), "{" + lines.join(",\n") + "}\n");
}

// ---- What the library makes of them ------------------------------------------------------------

async function main() {
    fs.mkdirSync(out, { recursive: true });
    fs.writeFileSync(path.join(out, "texts.json"), JSON.stringify(texts, null, 0).replace(/","/g, '",\n"') + "\n");
    for (const [name, description] of Object.entries(tokenizers)) {
        const json = JSON.stringify(description);
        const t = Tokenizer.fromString(json);
        const rows = [];
        for (const text of texts) {
            const ids = (await t.encode(text, null, { addSpecialTokens: false })).getIds();
            const begun = (await t.encode(text, null, { addSpecialTokens: true })).getIds();
            rows.push([ids, begun, await t.decode(ids, false)]);
        }
        fs.writeFileSync(path.join(out, name + ".json"), json + "\n");
        fs.writeFileSync(path.join(out, name + ".ids.json"), "[" + rows.map((r) => JSON.stringify(r)).join(",\n") + "]\n");
        console.log(name, rows.reduce((n, r) => n + r[0].length, 0), "ids");
    }
}
main().then(writeSplits);
