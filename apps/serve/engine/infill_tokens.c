// Which tokens of a vocabulary mark the parts of a prompt for filling in: see registry.h.
#include "apps/serve/engine/registry.h"

#include <string.h>

// By their names, where the file does not say: a row for each family, of prefix, suffix, middle,
// pad, repository and separator. NULL: none.
static const char *const families[][INFILL_TOKENS] = {
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

// Only these begin such a name, and few others.
static bool may_be_mark(const char *text, size_t n) {
    return n > 4 && (*text == '<' || *text == '[' || !memcmp(text, "\u2581<", 4));
}

void served_find_infill(served *s) {
    int32_t found[N_FAMILIES][INFILL_TOKENS];
    int32_t *own = s->infill;
    memset(found, -1, sizeof found);
    for (int i = 0; i < INFILL_TOKENS; i++) {
        const int64_t id = s->facts.infill[i];
        own[i] = id >= 0 && id < s->info.n_vocab ? (int32_t)id : -1;
    }
    for (int32_t id = 0; id < s->info.n_vocab; id++) {
        size_t n;
        const char *text = tern_token_text(s->model, id, &n);
        for (size_t k = 0; k < N_FAMILIES * INFILL_TOKENS && may_be_mark(text, n); k++) {
            const char *name = families[k / INFILL_TOKENS][k % INFILL_TOKENS];
            if (name && strlen(name) == n && !memcmp(name, text, n))
                found[k / INFILL_TOKENS][k % INFILL_TOKENS] = id;
        }
    }
    for (size_t k = 0; k < N_FAMILIES; k++) {
        const int32_t *f = found[k];
        const bool needs_middle = families[k][INFILL_MIDDLE] != NULL;
        if (f[INFILL_PREFIX] < 0 || f[INFILL_SUFFIX] < 0 || (needs_middle && f[INFILL_MIDDLE] < 0))
            continue;
        for (int i = 0; i < INFILL_TOKENS; i++)
            if (own[i] < 0) own[i] = f[i];
        if (!needs_middle) s->fills_backwards = own[INFILL_MIDDLE] < 0;
    }
}

bool served_fills(const served *s) {
    return s->state == SERVED_OPEN && s->infill[INFILL_PREFIX] >= 0 &&
           s->infill[INFILL_SUFFIX] >= 0 && (s->fills_backwards || s->infill[INFILL_MIDDLE] >= 0);
}
