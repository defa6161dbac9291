// The "normalizer" and "pre_tokenizer" of a tokenizer.json.
#include <string.h>
#include "input/tokenizer/tok.h"

#define DEPTH_MAX 8

typedef struct reader {
    tern_tokenizer *t;
    const tern_json_doc *doc;
    bool spelled; // after a ByteLevel step: its characters are no longer the text's
    tern_error *err;
} reader;

static tern_status unsupported(reader *r, const char *what, tern_str name) {
    return tern_fail(r->err, TERN_ERR_UNSUPPORTED, "tokenizer.json: %s \"%.*s\" is not supported",
                     what, (int)(name.len < 80 ? name.len : 80), name.ptr ? name.ptr : "");
}

static bool flag(const reader *r, const tern_json *object, const char *key, bool otherwise) {
    return tern_json_bool(tern_json_get(r->doc, object, key), otherwise);
}

static tern_str string(const reader *r, const tern_json *object, const char *key) {
    return tern_json_str(tern_json_get(r->doc, object, key));
}

// {"String": "x"} or {"Regex": "x"}.
static tern_status read_pattern(reader *r, const tern_json *owner, tern_pattern *p) {
    const tern_json *pattern = tern_json_get(r->doc, owner, "pattern");
    tern_str literal = string(r, pattern, "String"), regex = string(r, pattern, "Regex");
    if (literal.ptr) return tern_pattern_open_literal(p, literal, r->err);
    if (regex.ptr) return tern_pattern_open_regex(p, regex, r->err);
    return tern_fail(r->err, TERN_ERR_FORMAT, "tokenizer.json: line %u: a %.*s without a pattern",
                     owner->line, (int)string(r, owner, "type").len, string(r, owner, "type").ptr);
}

// ---- Normalizers --------------------------------------------------------------------------------

static tern_status read_normalizer(reader *r, const tern_json *v, int depth) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    tern_normalizer *z = &r->t->normalizer;
    tern_str type = string(r, v, "type"), none = {0};
    tern_norm_step *step = NULL;
    if (!tern_json_is(v, TERN_JSON_OBJECT)) return TERN_OK;
    if (depth > DEPTH_MAX) return unsupported(r, "so deep a", type);
    for (int i = 0; i < 4; i++) {
        if (!tern_str_is(type, forms[i])) continue;
        TERN_TRY(tern_normalizer_add(z, TERN_NORM_FORM, none, &step, r->err));
        step->form = (tern_normal_form)i;
        return TERN_OK;
    }
    if (tern_str_is(type, "Sequence")) {
        const tern_json *list = tern_json_get(r->doc, v, "normalizers");
        for (const tern_json *e = tern_json_first(r->doc, list); e;
             e = tern_json_next(r->doc, list, e))
            TERN_TRY(read_normalizer(r, e, depth + 1));
        return TERN_OK;
    }
    if (tern_str_is(type, "Replace")) {
        tern_str content = string(r, v, "content");
        TERN_TRY(tern_normalizer_add(z, TERN_NORM_REPLACE, content, &step, r->err));
        return read_pattern(r, v, &step->pattern);
    }
    if (tern_str_is(type, "BertNormalizer")) {
        bool lower = flag(r, v, "lowercase", true); // accents are removed with capitals by default
        return tern_normalizer_add_bert(z, flag(r, v, "clean_text", true),
                                        flag(r, v, "handle_chinese_chars", true),
                                        flag(r, v, "strip_accents", lower), lower, r->err);
    }
    if (tern_str_is(type, "StripAccents"))
        return tern_normalizer_add(z, TERN_NORM_NO_MARKS, none, &step, r->err);
    if (tern_str_is(type, "Precompiled"))
        return tern_normalizer_add_charsmap64(z, string(r, v, "precompiled_charsmap"), r->err);
    if (tern_str_is(type, "Prepend"))
        return tern_normalizer_add(z, TERN_NORM_PREPEND, string(r, v, "prepend"), &step, r->err);
    if (tern_str_is(type, "Lowercase"))
        return tern_normalizer_add(z, TERN_NORM_LOWER, none, &step, r->err);
    if (tern_str_is(type, "Strip")) {
        TERN_TRY(tern_normalizer_add(z, TERN_NORM_STRIP, none, &step, r->err));
        step->left = flag(r, v, "strip_left", true);
        step->right = flag(r, v, "strip_right", true);
        return TERN_OK;
    }
    if (tern_str_is(type, "ByteLevel")) { // like the pre-tokenizer of this name, without a split
        r->t->byte_level = true;
        return TERN_OK;
    }
    return unsupported(r, "the normalizer", type);
}

tern_status tern_tokenizer_json_normalizer(tern_tokenizer *t, const tern_json_doc *doc,
                                           const tern_json *value, tern_error *err) {
    reader r = {t, doc, false, err};
    return read_normalizer(&r, value, 0);
}

// ---- Pre-tokenizers -----------------------------------------------------------------------------

static tern_status add_step(reader *r, tern_step_kind kind, tern_split_step **step) {
    if (r->spelled) return unsupported(r, "a pre-tokenizer after", TERN_STR("ByteLevel"));
    *step = tern_splitter_add(&r->t->splitter);
    if (!*step)
        return tern_fail(r->err, TERN_ERR_UNSUPPORTED,
                         "tokenizer.json: more than %d pre-tokenizers", TERN_SPLIT_STEPS_MAX);
    (*step)->kind = kind;
    return TERN_OK;
}

static tern_status add_split(reader *r, tern_pattern_kind kind, tern_split_behavior behavior,
                             tern_split_step **step) {
    TERN_TRY(add_step(r, TERN_STEP_SPLIT, step));
    (*step)->pattern.kind = kind;
    (*step)->behavior = behavior;
    return TERN_OK;
}

static tern_status read_behavior(reader *r, const tern_json *v, tern_split_behavior *behavior) {
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    tern_str name = string(r, v, "behavior");
    if (!name.ptr) return TERN_OK; // isolated
    for (int i = 0; i < 5; i++) {
        if (!tern_str_is(name, names[i])) continue;
        *behavior = (tern_split_behavior)i;
        return TERN_OK;
    }
    return unsupported(r, "the split behavior", name);
}

static tern_status read_byte_level(reader *r, const tern_json *v) {
    tern_split_step *step = NULL;
    if (flag(r, v, "add_prefix_space", true)) TERN_TRY(add_step(r, TERN_STEP_PREFIX_SPACE, &step));
    if (flag(r, v, "use_regex", true))
        TERN_TRY(add_split(r, TERN_PATTERN_GPT2, TERN_SPLIT_ISOLATED, &step));
    r->t->byte_level = r->spelled = true;
    return TERN_OK;
}

static tern_status read_metaspace(reader *r, const tern_json *v) {
    tern_split_step *step = NULL;
    tern_str mark = string(r, v, "replacement"), scheme = string(r, v, "prepend_scheme");
    if (!tern_str_is(mark, TERN_SPACE_MARK)) return unsupported(r, "a Metaspace of", mark);
    TERN_TRY(add_step(r, TERN_STEP_METASPACE, &step));
    step->prepend = TERN_PREPEND_ALWAYS;
    if (tern_str_is(scheme, "first")) step->prepend = TERN_PREPEND_FIRST;
    if (tern_str_is(scheme, "never") || !flag(r, v, "add_prefix_space", true))
        step->prepend = TERN_PREPEND_NEVER;
    if (!flag(r, v, "split", true)) return TERN_OK;
    TERN_TRY(add_split(r, TERN_PATTERN_LITERAL, TERN_SPLIT_MERGE_NEXT, &step));
    return tern_pattern_open_literal(&step->pattern, TERN_STR(TERN_SPACE_MARK), r->err);
}

// \w+|[^\w\s]+ with \w spelled out, since engines differ on it; the rest is dropped.
static tern_status read_whitespace(reader *r) {
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}"
    tern_split_step *step = NULL;
    TERN_TRY(add_split(r, TERN_PATTERN_REGEX, TERN_SPLIT_REMOVED, &step));
    step->invert = true;
    tern_str words = TERN_STR("[" WORD "]+|[^\\s" WORD "]+");
    return tern_pattern_open_regex(&step->pattern, words, r->err);
}

static tern_status read_split(reader *r, const tern_json *v) {
    tern_split_step *step = NULL;
    TERN_TRY(add_split(r, TERN_PATTERN_LITERAL, TERN_SPLIT_ISOLATED, &step));
    TERN_TRY(read_behavior(r, v, &step->behavior));
    step->invert = flag(r, v, "invert", false);
    return read_pattern(r, v, &step->pattern);
}

static tern_status read_pre_tokenizer(reader *r, const tern_json *v, int depth) {
    tern_str type = string(r, v, "type");
    tern_split_step *step = NULL;
    if (!tern_json_is(v, TERN_JSON_OBJECT)) return TERN_OK;
    if (depth > DEPTH_MAX) return unsupported(r, "so deep a", type);
    if (tern_str_is(type, "Sequence")) {
        const tern_json *list = tern_json_get(r->doc, v, "pretokenizers");
        for (const tern_json *e = tern_json_first(r->doc, list); e;
             e = tern_json_next(r->doc, list, e))
            TERN_TRY(read_pre_tokenizer(r, e, depth + 1));
        return TERN_OK;
    }
    if (tern_str_is(type, "ByteLevel")) return read_byte_level(r, v);
    if (tern_str_is(type, "Metaspace")) return read_metaspace(r, v);
    if (tern_str_is(type, "Split")) return read_split(r, v);
    if (tern_str_is(type, "Whitespace")) return read_whitespace(r);
    if (tern_str_is(type, "WhitespaceSplit"))
        return add_split(r, TERN_PATTERN_SPACE, TERN_SPLIT_REMOVED, &step);
    if (tern_str_is(type, "Punctuation")) {
        TERN_TRY(add_split(r, TERN_PATTERN_PUNCT, TERN_SPLIT_ISOLATED, &step));
        return read_behavior(r, v, &step->behavior);
    }
    if (tern_str_is(type, "Digits")) {
        bool each = flag(r, v, "individual_digits", false);
        return add_split(r, each ? TERN_PATTERN_DIGIT : TERN_PATTERN_DIGITS, TERN_SPLIT_ISOLATED,
                         &step);
    }
    if (tern_str_is(type, "CharDelimiterSplit")) {
        TERN_TRY(add_split(r, TERN_PATTERN_LITERAL, TERN_SPLIT_REMOVED, &step));
        return tern_pattern_open_literal(&step->pattern, string(r, v, "delimiter"), r->err);
    }
    if (tern_str_is(type, "BertPreTokenizer")) {
        TERN_TRY(add_split(r, TERN_PATTERN_SPACE, TERN_SPLIT_REMOVED, &step));
        return add_split(r, TERN_PATTERN_PUNCT, TERN_SPLIT_ISOLATED, &step);
    }
    return unsupported(r, "the pre-tokenizer", type);
}

tern_status tern_tokenizer_json_splitter(tern_tokenizer *t, const tern_json_doc *doc,
                                         const tern_json *value, tern_error *err) {
    reader r = {t, doc, false, err};
    return read_pre_tokenizer(&r, value, 0);
}
