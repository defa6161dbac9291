// Prompts: templates filled in with the members of a seed.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "tasks/datagen/datagen.h"

// ---- Seeds -------------------------------------------------------------------------------------

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static tern_status find_lines(const char *text, size_t n, datagen_line **lines, size_t *n_lines,
                              tern_error *err) {
    size_t capacity = 0, number = 1;
    for (size_t at = 0, end; at < n; at = end + 1, number++) {
        const char *feed = memchr(text + at, '\n', n - at);
        size_t last = end = feed ? (size_t)(feed - text) : n;
        while (at < last && is_blank(text[at])) at++;
        while (at < last && is_blank(text[last - 1])) last--;
        if (at == last) continue;
        if (tern_array_reserve(TERN_MEM_MISC, lines, &capacity, *n_lines, 1) != 0)
            return tern_fail_memory(err, (*n_lines + 1) * sizeof **lines);
        (*lines)[(*n_lines)++] =
            (datagen_line){.text = text + at, .n = last - at, .number = number};
    }
    return TERN_OK;
}

// A string is the member "text" of an object.
void tern_datagen_put_seed(const datagen_job *j, size_t i, tern_strbuf *out) {
    const datagen_line *line = &j->seeds[i];
    if (line->is_text) tern_strbuf_puts(out, "{\"text\":");
    tern_strbuf_append(out, line->text, line->n);
    if (line->is_text) tern_strbuf_putc(out, '}');
}

static tern_status check_seed(datagen_line *line, tern_error *err) {
    tern_json_doc doc = {0};
    char which[48];
    tern_status status = tern_json_parse_part(&doc, line->text, line->n, err);
    line->is_text = tern_json_is(tern_json_root(&doc), TERN_JSON_STRING);
    if (status == TERN_OK && !line->is_text &&
        !tern_json_is(tern_json_root(&doc), TERN_JSON_OBJECT))
        status = tern_fail(err, TERN_ERR_FORMAT, "expected an object or a string");
    tern_json_free(&doc);
    if (status == TERN_OK) return TERN_OK;
    snprintf(which, sizeof which, "seeds: line %zu", line->number);
    return tern_fail_prefix(err, status, which);
}

static tern_status read_seeds(datagen_job *j, tern_error *err) {
    static const char none[] = "{}";
    bool given = j->desc->seeds != NULL;
    TERN_TRY(find_lines(given ? j->desc->seeds : none,
                        given ? j->desc->n_seed_bytes : sizeof none - 1, &j->seeds, &j->n_seeds,
                        err));
    if (j->n_seeds == 0) return tern_fail(err, TERN_ERR_ARGUMENT, "the seeds have no lines");
    for (size_t i = 0; i < j->n_seeds; i++) // finds a bad one at once
        TERN_TRY(check_seed(&j->seeds[i], err));
    return TERN_OK;
}

// ---- Templates ---------------------------------------------------------------------------------

static tern_status parse(tern_template **out, const char *source, const char *what,
                         tern_error *err) {
    return tern_template_open_text(out, (tern_str){source, strlen(source)}, what, err);
}

tern_status tern_datagen_prompts_open(datagen_job *j, tern_error *err) {
    const tern_datagen_desc *d = j->desc;
    TERN_TRY(read_seeds(j, err));
    TERN_TRY(parse(&j->prompt, d->prompt, "the prompt's template", err));
    if (d->system) TERN_TRY(parse(&j->system, d->system, "the system message's template", err));
    j->mentions = tern_alloc_array(TERN_MEM_MISC, d->n_mentions, sizeof *j->mentions);
    if (!j->mentions) return tern_fail_memory(err, d->n_mentions * sizeof *j->mentions);
    for (size_t i = 0; i < d->n_mentions; i++)
        TERN_TRY(parse(&j->mentions[i], d->mentions[i], "the mentions", err));
    return TERN_OK;
}

void tern_datagen_prompts_close(datagen_job *j) {
    tern_template_free(j->prompt);
    tern_template_free(j->system);
    for (size_t i = 0; j->mentions && i < j->desc->n_mentions; i++)
        tern_template_free(j->mentions[i]);
    tern_free(j->mentions);
    tern_free(j->seeds);
}

static tern_status fill_in(const tern_template *t, tern_str seed, tern_strbuf *out,
                           tern_error *err) {
    TERN_TRY(tern_template_render(t, seed.ptr, seed.len, out, err));
    return out->failed ? tern_fail_memory(err, out->len) : TERN_OK;
}

static tern_status fill_in_all(datagen_job *j, datagen_item *item, tern_str seed, tern_error *err) {
    const tern_datagen_desc *d = j->desc;
    TERN_TRY(fill_in(j->prompt, seed, &item->prompt, err));
    if (d->system) TERN_TRY(fill_in(j->system, seed, &item->system, err));
    item->mentions = tern_alloc_array(TERN_MEM_MISC, d->n_mentions, sizeof *item->mentions);
    if (!item->mentions) return tern_fail_memory(err, d->n_mentions * sizeof *item->mentions);
    for (size_t i = 0; i < d->n_mentions; i++)
        TERN_TRY(fill_in(j->mentions[i], seed, &item->mentions[i], err));
    return TERN_OK;
}

// ---- Tokens ------------------------------------------------------------------------------------

static size_t messages_of(const datagen_job *j, const datagen_item *item, tern_message out[2]) {
    size_t n = 0;
    if (j->desc->system)
        out[n++] = (tern_message){.role = "system", .content = tern_strbuf_text(&item->system)};
    out[n++] = (tern_message){.role = "user", .content = tern_strbuf_text(&item->prompt)};
    return n;
}

static bool append(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

static tern_status render(const datagen_job *j, datagen_item *item, tern_error *err) {
    tern_message messages[2];
    size_t n = messages_of(j, item, messages);
    if (j->desc->raw)
        tern_strbuf_append(&item->rendered, item->prompt.ptr, item->prompt.len);
    else
        TERN_TRY(tern_chat_format(j->model, messages, n, append, &item->rendered, err));
    return item->rendered.failed ? tern_fail_memory(err, item->rendered.len) : TERN_OK;
}

static tern_status tokens_of(const datagen_job *j, const datagen_item *item, tern_ids *out,
                             tern_error *err) {
    tern_message messages[2];
    size_t n = messages_of(j, item, messages);
    if (!j->desc->raw) return tern_chat_tokens(j->model, messages, n, NULL, out, err);
    return tern_tokenize(j->model, tern_strbuf_text(&item->prompt), item->prompt.len,
                         TERN_TOKENIZE_PLAIN | TERN_TOKENIZE_BOS, out, err);
}

static tern_status tokenize(const datagen_job *j, datagen_item *item, tern_error *err) {
    tern_ids all = {0};
    TERN_TRY(tokens_of(j, item, &all, err));
    all.ids = item->ids = tern_alloc_array(TERN_MEM_MISC, all.n, sizeof *item->ids);
    if (!item->ids) return tern_fail_memory(err, all.n * sizeof *item->ids);
    if (all.n == 0) return tern_fail(err, TERN_ERR_ARGUMENT, "the prompt has no tokens");
    all.capacity = item->n_ids = all.n;
    return tokens_of(j, item, &all, err);
}

tern_status tern_datagen_item_prompt(datagen_job *j, datagen_item *item, tern_error *err) {
    tern_strbuf seed = {0};
    char which[48];
    item->seed = (size_t)item->number % j->n_seeds;
    tern_datagen_put_seed(j, item->seed, &seed);
    tern_status status = seed.failed ? tern_fail_memory(err, seed.len)
                                     : fill_in_all(j, item, (tern_str){seed.ptr, seed.len}, err);
    if (status == TERN_OK) status = render(j, item, err);
    if (status == TERN_OK) status = tokenize(j, item, err);
    tern_strbuf_free(&seed);
    if (status == TERN_OK || !j->desc->seeds) return status;
    snprintf(which, sizeof which, "seeds: line %zu", j->seeds[item->seed].number);
    return tern_fail_prefix(err, status, which);
}
