// A file's settings for texts to embed: the texts put in front of them, which sentence-transformers
// calls prompts, and how long they may be. A folder has them in config_sentence_transformers.json
// and sentence_bert_config.json, a GGUF in keys of our own, "tern.prompts.*" and "tern.max_length".
#include <string.h>
#include "models/models.h"

#define KEY_NAMES  "tern.prompts.names"
#define KEY_TEXTS  "tern.prompts.texts"
#define KEY_FIRST  "tern.prompts.default"
#define KEY_LENGTH "tern.max_length"

static tern_status too_many(tern_error *err) {
    return tern_fail(err, TERN_ERR_FORMAT, "more than %d prompts", TERN_PROMPTS_MAX);
}

// Values that are not texts, such as null, count as absent.
static tern_status read_folder(const tern_file *file, tern_prompts *out, tern_error *err) {
    const tern_json_doc *doc = &file->sentence;
    const tern_json *list = tern_json_path(doc, "prompts");
    out->first = tern_json_str(tern_json_path(doc, "default_prompt_name"));
    if (!tern_json_is(list, TERN_JSON_OBJECT)) return TERN_OK;
    for (const tern_json *key = tern_json_first(doc, list); key;
         key = tern_json_next(doc, list, key)) {
        tern_str text = tern_json_str(tern_json_value_of(doc, key));
        if (!text.ptr) continue;
        if (out->n == TERN_PROMPTS_MAX) return too_many(err);
        out->names[out->n] = tern_json_str(key);
        out->texts[out->n++] = text;
    }
    return TERN_OK;
}

static const tern_meta *strings(const tern_file *file, const char *key) {
    const tern_meta *m = tern_file_meta(file, key);
    return m && m->type == TERN_META_ARRAY && m->strings ? m : NULL;
}

static tern_status read_gguf(const tern_file *file, tern_prompts *out, tern_error *err) {
    const tern_meta *names = strings(file, KEY_NAMES), *texts = strings(file, KEY_TEXTS);
    tern_file_meta_str(file, KEY_FIRST, &out->first);
    if (!names && !texts) return TERN_OK;
    if (!names || !texts || names->n != texts->n)
        return tern_fail(err, TERN_ERR_FORMAT, "%s and %s are not lists of the same length",
                         KEY_NAMES, KEY_TEXTS);
    if (names->n > TERN_PROMPTS_MAX) return too_many(err);
    out->n = (size_t)names->n;
    memcpy(out->names, names->strings, out->n * sizeof *out->names);
    memcpy(out->texts, texts->strings, out->n * sizeof *out->texts);
    return TERN_OK;
}

tern_status tern_prompts_read(const tern_file *file, tern_prompts *out, tern_error *err) {
    *out = (tern_prompts){.max_length = 0};
    if (file->kind == TERN_FILE_GGUF) {
        tern_file_meta_int(file, KEY_LENGTH, &out->max_length);
        TERN_TRY(read_gguf(file, out, err));
    } else {
        out->max_length =
            tern_json_int(tern_json_path(&file->sentence_length, "max_seq_length"), 0);
        TERN_TRY(read_folder(file, out, err));
    }
    if (!out->first.len) out->first.ptr = NULL;
    bool found = !out->first.ptr;
    for (size_t i = 0; i < out->n; i++) found |= tern_str_eq(out->first, out->names[i]);
    if (found) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "the default prompt \"%.*s\" is not one of the prompts",
                     (int)(out->first.len < 80 ? out->first.len : 80), out->first.ptr);
}

tern_status tern_prompts_write_length(tern_gguf_writer *w, int64_t n_tokens) {
    return tern_gguf_put_int(w, KEY_LENGTH, TERN_META_U32, n_tokens);
}

tern_status tern_prompts_write_gguf(tern_gguf_writer *w, const tern_file *from, tern_error *err) {
    tern_prompts p;
    TERN_TRY(tern_prompts_read(from, &p, err));
    if (p.max_length > 0) TERN_TRY(tern_prompts_write_length(w, p.max_length));
    if (p.n == 0) return TERN_OK;
    TERN_TRY(tern_gguf_put_strings(w, KEY_NAMES, p.names, p.n));
    TERN_TRY(tern_gguf_put_strings(w, KEY_TEXTS, p.texts, p.n));
    return p.first.ptr ? tern_gguf_put_str(w, KEY_FIRST, p.first) : TERN_OK;
}

// ---- Reranking ---------------------------------------------------------------------------------

const tern_rerank_prompt tern_rerank_prompt_usual = {
    .name = "Qwen3-Reranker",
    .mark = "<|im_start|>",
    .front =
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        "and the Instruct provided. Note that the answer can only be \"yes\" or "
        "\"no\".<|im_end|>\n<|im_start|>user\n",
    .instruction = "Given a web search query, retrieve relevant passages that answer the query",
    .back = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"};
