// GGUF has only a name for how a vocabulary splits text, tokenizer.ggml.pre; readers must know the
// expressions. Each is applied to the pieces of the one before it, and its matches become pieces.
#include <string.h>
#include "input/tokenizer/tok.h"

#define CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define SPACES       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SIGNS        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define LLAMA3       CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" SIGNS SPACES
#define QWEN2        CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" SIGNS SPACES
#define QWEN35                                                                                     \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"                                   \
                 "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
// Words by case: an upper-case head and a lower-case tail, each possibly with caseless letters.
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define HEAD        "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED_SIGNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
#define TEKKEN      HEAD UPPER "*" LOWER "+|" HEAD UPPER "+" LOWER "*|\\p{N}" CASED_SIGNS SPACES
#define GPT4O                                                                                      \
    HEAD UPPER "*" LOWER "+" CONTRACTIONS "?|" HEAD UPPER "+" LOWER "*" CONTRACTIONS               \
               "?|\\p{N}{1,3}" CASED_SIGNS SPACES
#define PUNCT_CLASS "[\\p{P}\\$\\+<=>\\^~\\|]+"
#define BLOOM       " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
// Letters with case, in the Unicode version of DeepSeek's time.
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{"    \
    "293}"                                                                                         \
    "\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}"          \
    "\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}"                 \
    "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"                     \
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}"                 \
    "\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}"                 \
    "\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}"         \
    "\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}"        \
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"                 \
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}"         \
    "\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}"         \
    "\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}"                   \
    "\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}"                  \
    "\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"                 \
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}"                 \
    "\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}"             \
    "\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}"         \
    "\\x{1E900}-\\x{1E943}"
#define DEEPSEEK_WORDS "\\s?[" DEEPSEEK_LETTERS "]+"
#define DEEPSEEK_SIGNS                                                                             \
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+"
#define CJK      "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define HAN_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define DEEPSEEK3_WORDS                                                                            \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"           \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
#define DEEPSEEK3 DEEPSEEK3_WORDS "[\\r\\n]*" SPACES
#define BAILING                                                                                    \
    "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" SIGNS        \
    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define SEED_CODER                                                                                 \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" SPACES
// Chinese characters are separate, and words are cut by case as in GPT4O.
#define NO_HAN "(?!\\p{sc:Han})"
#define KIMI                                                                                       \
    "\\p{sc:Han}+|" HEAD "(?:" NO_HAN UPPER ")*(?:" NO_HAN LOWER ")+" CONTRACTIONS "?|" HEAD       \
    "(?:" NO_HAN UPPER ")+(?:" NO_HAN LOWER ")*" CONTRACTIONS "?|\\p{N}{1,3}" SIGNS SPACES
#define YOUTU_SCRIPTS                                                                              \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{" \
    "2019}"                                                                                        \
    "\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|"                \
    "[\\x{3105}-\\x{312F}]+|" HAN_KANA
#define YOUTU                                                                                      \
    HEAD UPPER "*" LOWER "+" CONTRACTIONS "?|" HEAD UPPER "+" LOWER "*" CONTRACTIONS               \
               "?|\\p{N}" CASED_SIGNS SPACES
// Groups of three digits from the right: the first group may have one or two. Only used on runs of
// digits, so that no search looks further than one run.
#define THREES "^\\p{N}{1,2}(?=(?:\\p{N}{3})+$)|\\p{N}{1,3}"
#define AFMOE_SCRIPTS                                                                              \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-\\x{"  \
    "30FF}"                                                                                        \
    "\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}\\x{1780}-\\x{17FF}"  \
    "\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{"   \
    "11FF}]+"
// Words may have single spaces inside.
#define EXAONE_MOE                                                                                 \
    CONTRACTIONS "|" HEAD                                                                          \
                 "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?"    \
                 "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define JAIS2                                                                                      \
    CONTRACTIONS                                                                                   \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" SIGNS                                             \
    "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)"                \
    "|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
#define MINICPM5 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+" SIGNS SPACES
#define UFAKZEKA "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" SIGNS SPACES
#define LINES    "[^\\n]+|[\\n]+"

// For equal expressions, the name of the first row is written.
static const tern_pre table[] = {
    {"llama-bpe", true, true, {LLAMA3}},
    {"llama3", true, true, {LLAMA3}},
    {"llama-v3", true, true, {LLAMA3}},
    {"falcon3", true, true, {LLAMA3}},
    {"falcon-h1", true, true, {LLAMA3}},
    {"pixtral", true, true, {LLAMA3}},
    {"midm-2.0", true, true, {LLAMA3}},
    {"lfm2", true, true, {LLAMA3}},
    {"jina-v5-nano", true, true, {LLAMA3}},
    {"smaug-bpe", false, false, {LLAMA3}},
    {"dbrx", false, false, {LLAMA3}},
    {"glm4", false, false, {LLAMA3}},
    {"chatglm-bpe", false, false, {LLAMA3}},
    {"qwen2", false, false, {QWEN2}},
    {"deepseek-r1-qwen", false, false, {QWEN2}},
    {"kormo", false, false, {QWEN2}},
    {"f2llmv2", false, false, {QWEN2}},
    {"solar-open", false, false, {QWEN2}},
    {"stablelm2", false, false, {QWEN2}},
    {"hunyuan", false, false, {QWEN2}},
    {"megrez", false, false, {QWEN2}},
    {"grok-2", false, false, {QWEN2}},
    {"qwen35", false, false, {QWEN35}},
    {"gpt-2", false, false, {GPT2}},
    {"phi-2", false, false, {GPT2}},
    {"mpt", false, false, {GPT2}},
    {"olmo", false, false, {GPT2}},
    {"jais", false, false, {GPT2}},
    {"jina-es", false, false, {GPT2}},
    {"jina-de", false, false, {GPT2}},
    {"jina-v1-en", false, false, {GPT2}},
    {"jina-v2-es", false, false, {GPT2}},
    {"jina-v2-de", false, false, {GPT2}},
    {"jina-v2-code", false, false, {GPT2}},
    {"roberta-bpe", false, false, {GPT2}},
    {"gigachat", false, false, {GPT2}},
    {"a.x-4.0", false, false, {GPT2}},
    {"mellum", false, false, {GPT2}},
    {"modern-bert", false, false, {GPT2}},
    {"exaone4", false, false, {GPT2}},
    {"trillion", false, false, {GPT2}},
    {"granite-docling", false, false, {GPT2}},
    {"default", false, false, {PUNCT_CLASS, GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"falcon", false, false, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"starcoder", false, false, {"\\p{N}", GPT2}},
    {"smollm", false, false, {"\\p{N}", GPT2}},
    {"refact", false, false, {"\\p{N}", GPT2}},
    {"command-r", false, false, {"\\p{N}", GPT2}},
    {"codeshell", false, false, {"\\p{N}", GPT2}},
    {"exaone", false, false, {"\\p{N}", GPT2}},
    {"minerva-7b", false, false, {"\\p{N}", GPT2}},
    {"mellum2", false, false, {"\\p{N}", GPT2}},
    {"deepseek-llm",
     false,
     false,
     {"[\\r\\n]", DEEPSEEK_WORDS, DEEPSEEK_SIGNS, "\\s+$", CJK, "\\p{N}+"}},
    {"deepseek-coder", false, false, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}},
    {"deepseek-v3", false, false, {"\\p{N}{1,3}", HAN_KANA, DEEPSEEK3}},
    {"hunyuan-dense", false, false, {"\\p{N}{1,3}", HAN_KANA, DEEPSEEK3}},
    {"joyai-llm", false, false, {"\\p{N}{1,3}", HAN_KANA, DEEPSEEK3}},
    {"hy_v4", false, false, {"\\p{N}{1,3}", HAN_KANA, DEEPSEEK3}},
    {"spark2_5",
     false,
     false,
     {"\\p{N}{1,3}", HAN_KANA, DEEPSEEK3_WORDS "|[\\r\\n]|\\s+(?!\\S)|\\s+", "\\p{N}"}},
    {"afmoe", false, false, {"\\p{N}+", THREES, AFMOE_SCRIPTS, DEEPSEEK3}},
    {"kimi-k2", false, false, {KIMI}},
    {"youtu", true, false, {YOUTU_SCRIPTS, YOUTU}},
    {"exaone-moe", false, false, {EXAONE_MOE}},
    {"jais-2", false, false, {JAIS2}},
    {"minicpm5", true, false, {"\\p{N}{1,3}", MINICPM5}},
    {"ufakzeka", false, false, {UFAKZEKA}},
    {"laguna", false, false, {LINES, QWEN2}},
    {"tiny_aya", false, false, {"\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O}},
    {"cohere2moe", false, false, {"\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O}},
    {"gemma4", false, true, {LINES}},
    {"granite-embed-multi-311m", false, false, {LINES}},
    {"sarvam-moe", false, false, {LINES}},
    {"chameleon",
     false,
     true,
     {"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",
      "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    {"tekken", true, true, {TEKKEN}},
    {"gpt-4o", false, false, {GPT4O}},
    {"llama4", false, false, {GPT4O}},
    {"minimax-m2", false, false, {GPT4O}},
    {"kanana2", false, false, {GPT4O}},
    {"talkie", false, false, {GPT4O}},
    {"granite-embed-multi-97m", true, false, {GPT4O}},
    {"bloom", false, false, {BLOOM}},
    {"poro-chat", false, false, {BLOOM}},
    {"gpt3-finnish", false, false, {BLOOM}},
    {"viking", false, false, {BLOOM, "\\p{N}"}},
    {"bailingmoe", false, false, {BAILING}},
    {"bailingmoe2", false, false, {BAILING}},
    {"llada-moe", false, false, {BAILING}},
    {"seed-coder", false, false, {SEED_CODER}},
    {"superbpe", false, false, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
};

#define N_ROWS        (sizeof table / sizeof *table)
#define N_EXPRESSIONS (int)(sizeof table[0].expressions / sizeof *table[0].expressions)

const tern_pre *tern_pre_find(tern_str name) {
    for (size_t i = 0; i < N_ROWS; i++)
        if (tern_str_is(name, table[i].name)) return &table[i];
    return NULL;
}

bool tern_pre_is_raw(const tern_pre *pre) {
    return strcmp(pre->expressions[0], LINES) == 0 && !pre->expressions[1];
}

tern_status tern_pre_add_steps(const tern_pre *pre, tern_splitter *s, tern_error *err) {
    for (int i = 0; i < N_EXPRESSIONS && pre->expressions[i]; i++) {
        tern_split_step *step = tern_splitter_add(s); // never more than there is room for
        tern_str text = {pre->expressions[i], strlen(pre->expressions[i])};
        TERN_TRY(tern_pattern_open_regex(&step->pattern, text, err));
    }
    return TERN_OK;
}

// Some expressions have a form for case folding and one that spells the cases out.
static bool same_pattern(const tern_pattern *p, const char *expression) {
    tern_pattern known = {0};
    tern_str text = {expression, strlen(expression)};
    if (p->kind == TERN_PATTERN_REGEX) return tern_str_eq((tern_str){p->text, p->n_text}, text);
    if (!tern_pattern_is_known(&known, text)) return false;
    return known.kind == p->kind && known.max_digits == p->max_digits;
}

const char *tern_pre_name(const tern_splitter *s, bool ignore_merges) {
    const char *other = NULL; // the same except for ignore_merges
    for (size_t i = 0; i < N_ROWS; i++) {
        int k = 0;
        while (k < s->n_steps && k < N_EXPRESSIONS && table[i].expressions[k] &&
               s->steps[k].kind == TERN_STEP_SPLIT && !s->steps[k].invert &&
               s->steps[k].behavior == TERN_SPLIT_ISOLATED &&
               same_pattern(&s->steps[k].pattern, table[i].expressions[k]))
            k++;
        if (tern_pre_is_raw(&table[i]) || k == 0 || k != s->n_steps ||
            (k < N_EXPRESSIONS && table[i].expressions[k]))
            continue;
        if (table[i].ignore_merges == ignore_merges) return table[i].name;
        if (!other) other = table[i].name;
    }
    return other;
}
