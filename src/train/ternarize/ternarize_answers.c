// What the float model says itself, as text to heal on: its own words in its own chat format, which
// other people's texts may lack. Prompts are the caller's, or beginnings of the texts: of chats
// their first message, which it answers, of others some words, which it goes on from.
#include <string.h>
#include "base/alloc.h"
#include "tern_tools.h"
#include "train/data/data.h"
#include "train/ternarize/ternarize.h"

enum { PROMPT_BYTES = 160 };

typedef struct answering {
    tern_strbuf prompts; // a JSON string in each line
    bool raw;            // no chat: the model goes on
} answering;

// ---- Prompts -----------------------------------------------------------------------------------

static tern_status has_template(const tern_ternarizing *j, bool *has) {
    tern_file *file;
    TERN_TRY(tern_file_open(&file, j->desc->model, j->err));
    const tern_json *own = tern_json_path(&file->tokenizer_config, "chat_template");
    *has = file->chat_template.ptr || tern_json_str(own).ptr;
    tern_file_close(file);
    return TERN_OK;
}

static tern_status read_prompts(const tern_ternarizing *j, answering *a) {
    tern_blob_file *file;
    tern_blob blob;
    tern_hold held = {0};
    bool chats = false;
    TERN_TRY(has_template(j, &chats));
    a->raw = !chats;
    TERN_TRY(tern_blob_open(&file, j->desc->prompts, false, &blob, j->err));
    tern_status status = tern_blob_hold(&blob, &held, j->err);
    if (status == TERN_OK) tern_strbuf_append(&a->prompts, held.data, (size_t)blob.n);
    tern_blob_release(&held);
    tern_blob_close(file);
    return status;
}

// The first line, or as many whole words of it as fit.
static tern_str beginning(tern_str text) {
    size_t n = 0, word = 0;
    while (n < text.len && n < PROMPT_BYTES && text.ptr[n] != '\n') {
        if (text.ptr[n] == ' ') word = n;
        n++;
    }
    return (tern_str){text.ptr, n < PROMPT_BYTES || !word ? n : word};
}

// Documents of the kind that comes first.
static tern_status draw_prompts(const tern_ternarizing *j, answering *a) {
    tern_data_source texts = j->desc->source;
    tern_documents *d;
    int64_t n = 0;
    bool more = true;
    texts.held_out = NULL;
    texts.n_held_out = 0;
    TERN_TRY(tern_documents_open(&d, &texts, j->err));
    tern_status status = TERN_OK;
    while (status == TERN_OK && n < j->desc->n_answers) {
        tern_document document;
        status = tern_documents_next(d, &document, &more, j->err);
        if (status != TERN_OK || !more) break;
        if (n == 0) a->raw = !document.chat;
        const tern_str prompt = beginning(document.text);
        if (document.is_rest || prompt.len == 0 || a->raw != !document.chat) continue;
        tern_strbuf_json(&a->prompts, prompt.ptr, prompt.len);
        tern_strbuf_putc(&a->prompts, '\n');
        n++;
    }
    tern_documents_close(d);
    return status;
}

// ---- Answers -----------------------------------------------------------------------------------

static tern_status answer(const tern_ternarizing *j, const answering *a) {
    tern_model *m = NULL;
    tern_sampling sampling = tern_sampling_default();
    tern_datagen_stats stats = {0};
    sampling.seed = j->desc->train.seed;
    // Its own words are right whatever they are: only what it says again and again is left out.
    const tern_datagen_desc d = {.prompt = "{{ text }}",
                                 .seeds = tern_strbuf_text(&a->prompts),
                                 .n_seed_bytes = a->prompts.len,
                                 .raw = a->raw,
                                 .n_records = j->desc->n_answers,
                                 .sampling = &sampling,
                                 .min_quality = -1,
                                 .max_repetition = 0.5f,
                                 .keep_cut = true,
                                 .path = j->answers,
                                 .on_progress = j->desc->on_progress,
                                 .user = j->desc->user};
    TERN_TRY(tern_ternarize_open(j, j->desc->model, &m));
    tern_status status = tern_datagen(m, &d, &stats, j->err);
    tern_model_close(m);
    if (status == TERN_OK && stats.n_records == 0)
        status = tern_fail(j->err, TERN_ERR_ARGUMENT,
                           "%s: of %lld answers none is of use: do without answers", j->desc->model,
                           (long long)stats.n_items);
    return status;
}

tern_status tern_ternarize_answers(tern_ternarizing *j) {
    answering a = {0};
    tern_status status = j->desc->prompts ? read_prompts(j, &a) : draw_prompts(j, &a);
    if (status == TERN_OK && a.prompts.failed) status = tern_fail_memory(j->err, a.prompts.len);
    if (status == TERN_OK) status = answer(j, &a);
    tern_strbuf_free(&a.prompts);
    return status;
}
