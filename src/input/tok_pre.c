// GGUF names the way a vocabulary splits text, tokenizer.ggml.pre, and leaves it to the reader to
// know the expressions. Each is applied to the pieces that the one before it left, and what it
// matches stands alone.
#include <string.h>
#include "input/tok.h"

#define CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define SPACES       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SIGNS        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define LLAMA3       CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" SIGNS SPACES
#define QWEN2        CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" SIGNS SPACES
#define QWEN35                                                                                     \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"                                   \
                 "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES
#define GPT2  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
// Words by case: an upper-case head and a lower-case tail, each possibly with caseless letters.
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define HEAD  "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED_SIGNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
#define TEKKEN                                                                                     \
    HEAD UPPER "*" LOWER "+|" HEAD UPPER "+" LOWER "*|\\p{N}" CASED_SIGNS SPACES
#define GPT4O                                                                                      \
    HEAD UPPER "*" LOWER "+" CONTRACTIONS "?|" HEAD UPPER "+" LOWER "*" CONTRACTIONS               \
         "?|\\p{N}{1,3}" CASED_SIGNS SPACES
#define PUNCT_CLASS "[\\p{P}\\$\\+<=>\\^~\\|]+"
#define BLOOM       " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"           \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES
#define BAILING                                                                                    \
    "'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" SIGNS        \
    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define SEED_CODER                                                                                 \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" SPACES

// The first row of equal expressions is the name that is written.
static const tern_pre table[] = {
    {"llama-bpe", true, true, {LLAMA3}},
    {"llama3", true, true, {LLAMA3}},
    {"llama-v3", true, true, {LLAMA3}},
    {"falcon3", true, true, {LLAMA3}},
    {"falcon-h1", true, true, {LLAMA3}},
    {"pixtral", true, true, {LLAMA3}},
    {"midm-2.0", true, true, {LLAMA3}},
    {"lfm2", true, true, {LLAMA3}},
    {"smaug-bpe", false, false, {LLAMA3}},
    {"dbrx", false, false, {LLAMA3}},
    {"glm4", false, false, {LLAMA3}},
    {"chatglm-bpe", false, false, {LLAMA3}},
    {"qwen2", false, false, {QWEN2}},
    {"deepseek-r1-qwen", false, false, {QWEN2}},
    {"kormo", false, false, {QWEN2}},
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
    {"deepseek-coder", false, false,
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
      "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}"}},
    {"deepseek-v3", false, false,
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", DEEPSEEK3}},
    {"hunyuan-dense", false, false,
     {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", DEEPSEEK3}},
    {"tekken", true, true, {TEKKEN}},
    {"gpt-4o", false, false, {GPT4O}},
    {"llama4", false, false, {GPT4O}},
    {"minimax-m2", false, false, {GPT4O}},
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
    if (p->kind == TERN_PATTERN_REGEX)
        return tern_str_eq((tern_str){p->text, p->n_text}, text);
    if (!tern_pattern_is_known(&known, text)) return false;
    return known.kind == p->kind && known.max_digits == p->max_digits;
}

const char *tern_pre_name(const tern_splitter *s, bool ignore_merges) {
    const char *other = NULL; // right but for ignore_merges
    for (size_t i = 0; i < N_ROWS; i++) {
        int k = 0;
        while (k < s->n_steps && k < N_EXPRESSIONS && table[i].expressions[k] &&
               s->steps[k].kind == TERN_STEP_SPLIT && !s->steps[k].invert &&
               s->steps[k].behavior == TERN_SPLIT_ISOLATED &&
               same_pattern(&s->steps[k].pattern, table[i].expressions[k]))
            k++;
        if (k == 0 || k != s->n_steps || (k < N_EXPRESSIONS && table[i].expressions[k])) continue;
        if (table[i].ignore_merges == ignore_merges) return table[i].name;
        if (!other) other = table[i].name;
    }
    return other;
}
