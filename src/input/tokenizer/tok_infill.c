// Which tokens of a vocabulary mark the parts of a prompt for filling in: those that the file
// names, and others by their names.
#include <string.h>
#include "input/tokenizer/tok.h"

// A row for each family, of prefix, suffix, middle, pad, repository and separator. NULL: none.
static const char *const families[][TERN_INFILL_TOKENS] = {
    // Qwen 2.5 and 3 Coder, CodeGemma, Seed
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>",
     "<|file_sep|>"},
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", NULL, NULL, "<|file_separator|>"},
    // StarCoder 2, Granite, Refact; SantaCoder
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<repo_name>", "<file_sep>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<reponame>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<fim-pad>", NULL, NULL},
    // DeepSeek
    {"<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>",
     NULL, NULL, NULL},
    {"<|fim_begin|>", "<|fim_hole|>", "<|fim_end|>", NULL, NULL, NULL},
    // GLM
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL, NULL, NULL},
    // CodeLlama
    {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>", NULL, NULL, NULL},
    {"<PRE>", "<SUF>", "<MID>", NULL, NULL, NULL},
    // Codestral: the suffix first, and nothing after the prefix
    {"[PREFIX]", "[SUFFIX]", NULL, NULL, NULL, NULL},
};
#define N_FAMILIES (sizeof families / sizeof *families)

void tern_tokenizer_infill(const tern_tokenizer *t, tern_infill_info *out) {
    int32_t own[TERN_INFILL_TOKENS];
    bool is_backwards = false;
    memcpy(own, t->infill, sizeof own);
    for (size_t k = 0; k < N_FAMILIES; k++) {
        int32_t found[TERN_INFILL_TOKENS];
        for (int i = 0; i < TERN_INFILL_TOKENS; i++) {
            const char *name = families[k][i];
            found[i] = name ? tern_vocab_find(&t->vocab, name, strlen(name)) : -1;
        }
        const bool needs_middle = families[k][2] != NULL;
        if (found[0] < 0 || found[1] < 0 || (needs_middle && found[2] < 0)) continue;
        for (int i = 0; i < TERN_INFILL_TOKENS; i++)
            if (own[i] < 0) own[i] = found[i];
        if (!needs_middle) is_backwards = own[2] < 0;
    }
    *out = (tern_infill_info){.prefix_token = own[0],
                              .suffix_token = own[1],
                              .middle_token = own[2],
                              .pad_token = own[3],
                              .repository_token = own[4],
                              .separator_token = own[5],
                              .suffix_first = is_backwards};
    out->fills_in = own[0] >= 0 && own[1] >= 0 && (is_backwards || own[2] >= 0);
}
