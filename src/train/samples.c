// What the model in training says: texts and chats that a person reads to see what a loss does not
// tell.
//
// They come from a session, as they will for those who use the model, and not from the trainer's
// graphs, which have no cache of keys and values: the weights are written, opened and removed. The
// most likely token is always taken, so that only the weights make a difference.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/lines.h"
#include "base/os/os_file.h"
#include "train/trainer.h"

enum { PROMPTS_MAX = 64 };

typedef struct prompt {
    char *text;   // or the JSON of a request
    bool is_chat; // rendered by the model's template
} prompt;

struct tern_train_samples {
    prompt prompts[PROMPTS_MAX];
    size_t n;
};

// ---- The prompts -------------------------------------------------------------------------------

static tern_status add(tern_train_samples *s, const char *text, size_t n, bool is_chat,
                       tern_error *err) {
    char *copy = tern_alloc(TERN_MEM_MISC, n + 1);
    if (!copy) return tern_fail_memory(err, n + 1);
    memcpy(copy, text, n);
    s->prompts[s->n++] = (prompt){copy, is_chat};
    return TERN_OK;
}

// {"prompt": TEXT}, or a request with "messages", and perhaps tools.
static tern_status add_json(tern_train_samples *s, const tern_lines *l, tern_error *err) {
    tern_json_doc doc = {0};
    const char *line = tern_strbuf_text(&l->line);
    tern_status status = tern_json_parse_part(&doc, line, l->line.len, err);
    const tern_json *root = status == TERN_OK ? tern_json_root(&doc) : NULL;
    tern_str text = tern_json_str(tern_json_get(&doc, root, "prompt"));
    bool is_chat = tern_json_is(tern_json_get(&doc, root, "messages"), TERN_JSON_ARRAY);
    if (status == TERN_ERR_MEMORY) return status;
    if (status != TERN_OK)
        status = tern_lines_fail(l, err, TERN_ERR_FORMAT, "is not JSON");
    else if (is_chat)
        status = add(s, line, l->line.len, true, err);
    else if (text.ptr && text.len > 0 && !memchr(text.ptr, 0, text.len))
        status = add(s, text.ptr, text.len, false, err);
    else
        status = tern_lines_fail(l, err, TERN_ERR_FORMAT,
                                 "has neither a text as \"prompt\" nor a list of \"messages\"");
    tern_json_free(&doc);
    return status;
}

static tern_status add_line(tern_train_samples *s, const tern_lines *l, bool is_json,
                            tern_error *err) {
    if (l->line.len == 0) return TERN_OK;
    if (s->n == PROMPTS_MAX)
        return tern_lines_fail(l, err, TERN_ERR_ARGUMENT, "is one prompt too many: 64 are read");
    if (is_json) return add_json(s, l, err);
    if (memchr(l->line.ptr, 0, l->line.len))
        return tern_lines_fail(l, err, TERN_ERR_FORMAT, "has a NUL in it");
    return add(s, l->line.ptr, l->line.len, false, err);
}

tern_status tern_samples_open(tern_trainer *t, tern_error *err) {
    const char *path = t->desc.sample_prompts;
    bool more = true, is_json = tern_name_ends(path, ".jsonl");
    tern_lines l;
    t->samples = tern_alloc(TERN_MEM_MISC, sizeof *t->samples);
    if (!t->samples) return tern_fail_memory(err, sizeof *t->samples);
    TERN_TRY(tern_lines_open(&l, path, err));
    tern_status status = TERN_OK;
    while (status == TERN_OK) {
        status = tern_lines_next(&l, &more, err);
        if (status != TERN_OK || !more) break;
        status = add_line(t->samples, &l, is_json, err);
    }
    tern_lines_close(&l);
    if (status == TERN_OK && t->samples->n == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: there is no prompt in it", path);
    return status;
}

void tern_samples_close(tern_train_samples *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) tern_free(s->prompts[i].text);
    tern_free(s);
}

// ---- The answers -------------------------------------------------------------------------------

typedef struct speaker {
    tern_model *model;
    tern_session *session;
    tern_ids ids; // room for a context
    int32_t n_tokens;
    tern_strbuf prompt, text; // of the last sample
} speaker;

static bool take_text(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

static tern_status render(speaker *s, const prompt *p, tern_error *err) {
    size_t n = strlen(p->text);
    const tern_chat_request request = {.json = p->text, .n_bytes = n};
    if (!p->is_chat) {
        tern_strbuf_append(&s->prompt, p->text, n);
        return tern_tokenize(s->model, p->text, n, TERN_TOKENIZE_BOS, &s->ids, err);
    }
    TERN_TRY(tern_chat_format_json(s->model, p->text, n, take_text, &s->prompt, err));
    return tern_chat_tokens_json(s->model, &request, NULL, &s->ids, err);
}

static tern_status say(speaker *s, const prompt *p, tern_error *err) {
    tern_sampling greedy = tern_sampling_default();
    greedy.temperature = 0;
    const tern_generate_params params = {
        .sampling = &greedy, .max_tokens = s->n_tokens, .on_text = take_text, .user = &s->text};
    tern_strbuf_clear(&s->prompt);
    tern_strbuf_clear(&s->text);
    TERN_TRY(render(s, p, err));
    if (s->ids.n > s->ids.capacity)
        return tern_fail(err, TERN_ERR_CONTEXT_FULL, "a prompt of %zu tokens, and room for %zu",
                         s->ids.n, s->ids.capacity);
    TERN_TRY(tern_generate_ids(s->session, s->ids.ids, s->ids.n, &params, NULL, err));
    TERN_TRY(tern_check_cancelled("sampling", err));
    bool failed = s->prompt.failed || s->text.failed;
    return failed ? tern_fail_memory(err, s->text.len) : TERN_OK;
}

static tern_status say_all(tern_trainer *t, speaker *s, tern_sample_fn on_sample, void *user,
                           tern_error *err) {
    TERN_TRY(tern_session_open(&s->session, s->model, &(tern_session_desc){0}, err));
    s->ids.capacity = (size_t)tern_session_n_context(s->session);
    s->ids.ids = tern_alloc_array(TERN_MEM_MISC, s->ids.capacity, sizeof *s->ids.ids);
    if (!s->ids.ids) return tern_fail_memory(err, s->ids.capacity * sizeof *s->ids.ids);
    for (size_t i = 0; i < t->samples->n; i++) {
        TERN_TRY(say(s, &t->samples->prompts[i], err));
        TERN_TRY(on_sample(user, tern_strbuf_text(&s->prompt), tern_strbuf_text(&s->text), err));
    }
    return TERN_OK;
}

static tern_status open_and_say(tern_trainer *t, const char *path, tern_sample_fn on_sample,
                                void *user, tern_error *err) {
    const tern_lora adapter = {.path = path};
    const tern_model_desc desc = {.n_threads = t->desc.n_threads,
                                  .cpu_features = t->desc.cpu_features,
                                  .chat_template = t->chat_template,
                                  .mmproj = "",
                                  .loras = &adapter,
                                  .n_loras = t->base ? 1 : 0};
    speaker s = {.n_tokens = t->desc.sample_tokens};
    TERN_TRY(tern_model_open(&s.model, t->base ? t->desc.init : path, &desc, err));
    tern_status status = say_all(t, &s, on_sample, user, err);
    tern_session_close(s.session);
    tern_model_close(s.model);
    tern_free(s.ids.ids);
    tern_strbuf_free(&s.prompt);
    tern_strbuf_free(&s.text);
    return status;
}

tern_status tern_samples_make(tern_trainer *t, tern_sample_fn on_sample, void *user,
                              tern_error *err) {
    static const char name[] = "sample.gguf";
    char *path = tern_path_join(t->desc.out, name);
    if (!path) return tern_fail_memory(err, strlen(t->desc.out));
    tern_status status = tern_checkpoint_write_weights(t, name, err);
    if (status == TERN_OK) status = open_and_say(t, path, on_sample, user, err);
    tern_file_remove(path);
    tern_free(path);
    return status;
}
