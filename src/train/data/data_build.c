// Documents to shards.
//
// A batch of documents is read, then sketched and tokenized by all threads, then judged and written
// in order by one thread. So the result does not depend on the threads, and a document is compared
// with all earlier ones, in either split. Its split depends on its words and the seed alone: adding
// documents later moves none.
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/os/os_time.h"
#include "base/hash.h"
#include "formats/formats.h"
#include "formats/shard/shard.h"
#include "input/input.h"
#include "session/session.h"
#include "base/os/team.h"
#include "tern.h"
#include "train/data/data.h"

#define BATCH_DOCUMENTS 1024
#define BATCH_BYTES     ((size_t)4 << 20)

typedef struct job { // a document of the batch
    size_t at, n;    // bytes of builder.texts
    size_t n_text;
    tern_document_place place;
    bool is_chat;
    size_t request, n_request, left_out, n_left_out; // of builder.texts, builder.left_out
    tern_token_spans spans;                          // of ids, not scored
    uint64_t taken;                                  // index, UINT64_MAX: it is not read again
    tern_sketch sketch;
    tern_ids ids;
} job;

typedef struct split {
    const char *name;
    tern_shard_writer *writer; // NULL: the next document begins a shard
    tern_data_split *stats;
} split;

typedef struct builder {
    const char *folder;
    const tern_data_build_desc *desc;
    tern_data_build_stats *stats;
    tern_file *file;
    tern_tokenizer *tokenizer;
    tern_template *template; // loaded at the first chat
    tern_shard_desc shard;
    tern_out_set out;
    int32_t begin_id; // put in front of a document, -1: none
    tern_documents *documents;
    tern_dedup *dedup;
    tern_team *team;
    tern_sketcher *sketchers; // [n_threads]
    tern_error *errors;       // [n_threads]
    job *jobs;                // [BATCH_DOCUMENTS]
    size_t n_jobs;
    uint32_t *left_out; // messages of the batch's chats
    size_t n_left_out, left_out_capacity;
    tern_strbuf texts;
    atomic_size_t next_job;
    split train, valid;
    tern_source_count *counts; // [n_sources]
    int pass;                  // over the sources; from 1 on only those with a greater weight
    uint8_t *taken; // 1: a document is in the training text, of those that are read again
    size_t n_taken, taken_capacity;
    tern_strbuf shards; // of the manifest
    tern_error *err;
} builder;

// ---- A shard at a time --------------------------------------------------------------------------

static tern_status shard_name(const builder *b, const split *s, int32_t i, tern_strbuf *name) {
    tern_strbuf_printf(name, "%s-%05d.tern", s->name, i);
    return name->failed ? tern_fail_memory(b->err, 32) : TERN_OK;
}

// A line of the manifest. Opens the file, so it is known to be readable.
static tern_status describe_shard(builder *b, const split *s, const char *name) {
    tern_shard *shard;
    char *path = tern_out_staged(&b->out, name);
    if (!path) return tern_fail_memory(b->err, strlen(b->folder) + 64);
    tern_status status = tern_shard_open(&shard, path, b->err);
    tern_free(path);
    TERN_TRY(status);
    const tern_shard_info *info = tern_shard_get_info(shard);
    tern_strbuf_printf(&b->shards,
                       "%s\n    {\"file\": \"%s\", \"split\": \"%s\", \"tokens\": %llu, "
                       "\"documents\": %llu, \"checksum\": \"%08x\"}",
                       b->shards.len ? "," : "", name, s->name, (unsigned long long)info->n_tokens,
                       (unsigned long long)info->n_documents, info->checksum);
    tern_shard_close(shard);
    return b->shards.failed ? tern_fail_memory(b->err, b->shards.len) : TERN_OK;
}

static tern_status end_shard(builder *b, split *s) {
    if (!s->writer) return TERN_OK;
    tern_strbuf name = {0};
    tern_status status = tern_shard_writer_finish(s->writer, b->err);
    if (status == TERN_OK) status = shard_name(b, s, s->stats->n_shards, &name);
    if (status == TERN_OK) status = describe_shard(b, s, name.ptr);
    tern_strbuf_free(&name);
    tern_shard_writer_free(s->writer);
    s->writer = NULL;
    s->stats->n_shards += status == TERN_OK;
    return status;
}

static tern_status begin_shard(builder *b, split *s) {
    tern_strbuf name = {0};
    if (s->stats->n_shards == 99999)
        return tern_fail(b->err, TERN_ERR_ARGUMENT,
                         "%s: more than 99999 shards; ask for larger ones", b->folder);
    tern_status status = shard_name(b, s, s->stats->n_shards, &name);
    if (status == TERN_OK)
        status = tern_shard_writer_open_in(&s->writer, &b->out, name.ptr, &b->shard, b->err);
    tern_strbuf_free(&name);
    return status;
}

// A number in [0, 1) that depends on a document's words: 53 bits of a hash.
static double chance(const builder *b, const job *j, uint64_t key) {
    uint64_t hash = tern_mix64(j->sketch.exact ^ tern_mix64(b->desc->seed + key));
    return (double)(hash >> 11) * 0x1p-53;
}

// A weight of 2.25: twice, and a quarter of the documents once more.
static bool is_drawn(const builder *b, const job *j) {
    double weight = tern_documents_source(b->documents, j->place.source)->weight;
    return chance(b, j, (uint64_t)b->pass + 2) < weight - b->pass;
}

static tern_status write_document(builder *b, const job *j) {
    tern_source_count *count = &b->counts[j->place.source];
    bool is_held_out = tern_documents_source(b->documents, j->place.source)->is_held_out;
    bool held_out = is_held_out || chance(b, j, 1) < b->desc->valid;
    split *s = held_out ? &b->valid : &b->train;
    uint64_t n_most = b->desc->shard_tokens ? b->desc->shard_tokens : (uint64_t)1 << 26;
    if (s->writer && tern_shard_writer_n_tokens(s->writer) + j->ids.n > n_most)
        TERN_TRY(end_shard(b, s));
    if (!s->writer) TERN_TRY(begin_shard(b, s));
    s->stats->n_documents++;
    s->stats->n_tokens += j->ids.n;
    s->stats->n_bytes += j->n_text;
    count->n_kept += b->pass == 0;
    count->n_train_documents += !held_out;
    count->n_train_tokens += held_out ? 0 : j->ids.n;
    if (!b->pass && j->taken < UINT64_MAX) b->taken[j->taken] = !held_out;
    TERN_TRY(tern_shard_write(s->writer, j->ids.ids, j->ids.n, b->err));
    for (size_t i = 0; i < j->spans.n; i++) {
        tern_token_span span = j->spans.list[i];
        TERN_TRY(tern_shard_leave_out(s->writer, span.first, span.end, b->err));
        s->stats->n_unscored += span.end - span.first;
    }
    return TERN_OK;
}

// ---- A batch at a time --------------------------------------------------------------------------

static tern_status render_chat(builder *b, const tern_data_chat *chat) {
    tern_error why = {0};
    if (!b->template)
        TERN_TRY(tern_template_for_model(&b->template, b->file, b->tokenizer, NULL, b->err));
    tern_status status = tern_template_chat_json(b->template, b->tokenizer, chat->request.ptr,
                                                 chat->request.len, &b->texts, &why);
    if (status == TERN_OK || status == TERN_ERR_MEMORY) {
        if (status != TERN_OK && b->err) *b->err = why;
        return status;
    }
    return tern_documents_fail(b->documents, why.message, b->err);
}

// Keeps what it takes to find the messages that are not to be learnt.
static tern_status note_left_out(builder *b, job *j, const tern_data_chat *chat) {
    j->request = b->texts.len;
    j->n_request = chat->request.len;
    j->left_out = b->n_left_out;
    j->n_left_out = chat->n_left_out;
    if (!chat->n_left_out) return TERN_OK;
    tern_strbuf_append(&b->texts, chat->request.ptr, chat->request.len);
    if (tern_array_reserve(TERN_MEM_MISC, &b->left_out, &b->left_out_capacity, b->n_left_out,
                           chat->n_left_out) != 0)
        return tern_fail_memory(b->err, chat->n_left_out * sizeof *b->left_out);
    memcpy(b->left_out + b->n_left_out, chat->left_out, chat->n_left_out * sizeof *b->left_out);
    b->n_left_out += chat->n_left_out;
    if (!b->pass) b->stats->n_left_out += chat->n_left_out;
    return TERN_OK;
}

// Remembers for each document whether it is in the training text, or looks that up.
static tern_status look_up_taken(builder *b, const tern_document *document, uint64_t *index,
                                 bool *wanted) {
    tern_source_count *count = &b->counts[document->place.source];
    *index = UINT64_MAX;
    *wanted = true;
    if (b->pass) {
        *wanted = count->n_again < count->n_read && b->taken[count->first + count->n_again++];
        return TERN_OK;
    }
    if (tern_documents_source(b->documents, document->place.source)->weight <= 1) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_MISC, &b->taken, &b->taken_capacity, b->n_taken, 1) != 0)
        return tern_fail_memory(b->err, b->n_taken * 2);
    if (count->n_read == 0) count->first = b->n_taken;
    *index = b->n_taken;
    b->taken[b->n_taken++] = 0;
    return TERN_OK;
}

static tern_status read_job(builder *b, const tern_document *document) {
    uint64_t taken;
    bool wanted;
    TERN_TRY(look_up_taken(b, document, &taken, &wanted));
    if (!wanted) return TERN_OK;
    job *j = &b->jobs[b->n_jobs];
    j->at = b->texts.len;
    j->n_text = document->text.len;
    j->place = document->place;
    j->n_left_out = j->spans.n = 0;
    j->taken = taken;
    j->is_chat = document->chat != NULL;
    if (!b->pass) b->stats->n_of_shape[j->is_chat ? document->chat->shape : TERN_SHAPE_TEXT]++;
    if (!j->is_chat) {
        tern_strbuf_append(&b->texts, document->text.ptr, document->text.len);
    } else {
        TERN_TRY(render_chat(b, document->chat));
    }
    if (b->texts.failed) return tern_fail_memory(b->err, b->texts.len + document->text.len);
    j->n = b->texts.len - j->at;
    if (j->is_chat) TERN_TRY(note_left_out(b, j, document->chat));
    if (b->texts.failed) return tern_fail_memory(b->err, b->texts.len);
    b->counts[j->place.source].n_read += !b->pass;
    b->stats->n_read += !b->pass;
    b->n_jobs++;
    return TERN_OK;
}

static tern_status read_batch(builder *b, bool *more) {
    b->n_jobs = b->n_left_out = 0;
    tern_strbuf_clear(&b->texts);
    while (b->n_jobs < BATCH_DOCUMENTS && b->texts.len < BATCH_BYTES) {
        tern_document document;
        TERN_TRY(tern_documents_next(b->documents, &document, more, b->err));
        if (!*more) break;
        TERN_TRY(read_job(b, &document));
    }
    return TERN_OK;
}

static tern_status append_id(tern_ids *ids, int32_t id, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_MISC, &ids->ids, &ids->capacity, ids->n, 1) != 0)
        return tern_fail_memory(err, ids->capacity * 2 * sizeof *ids->ids);
    ids->ids[ids->n++] = id;
    return TERN_OK;
}

// If a text begins with the end token, the previous document's is already there.
static void drop_end(const builder *b, job *j) {
    tern_ids *ids = &j->ids;
    if (ids->n == 0 || ids->ids[0] != b->shard.end_id) return;
    memmove(ids->ids, ids->ids + 1, --ids->n * sizeof *ids->ids);
    size_t n = j->spans.n;
    j->spans.n = 0;
    for (size_t i = 0; i < n; i++) { // one may have begun with that token, or had nothing else
        tern_token_span s = j->spans.list[i];
        s.first -= s.first > 0;
        s.end--;
        if (s.first < s.end) j->spans.list[j->spans.n++] = s;
    }
}

static tern_status find_left_out(const builder *b, job *j, tern_error *err) {
    tern_error why = {0};
    tern_left_out l = {.template = b->template,
                       .tokenizer = b->tokenizer,
                       .request = {b->texts.ptr + j->request, j->n_request},
                       .messages = b->left_out + j->left_out,
                       .n_messages = j->n_left_out};
    tern_status status = tern_left_out_find(&l, &j->ids, &j->spans, &why);
    if (status == TERN_ERR_FORMAT)
        return tern_documents_fail_at(b->documents, &j->place, why.message, err);
    if (status != TERN_OK) *err = why;
    return status;
}

static tern_status do_job(const builder *b, job *j, tern_sketcher *sketcher, tern_error *err) {
    tern_str text = {b->texts.ptr + j->at, j->n};
    j->ids.n = 0;
    TERN_TRY(tern_sketch_text(sketcher, text, b->desc->drop_near, &j->sketch, err));
    if (j->is_chat) {
        TERN_TRY(tern_chat_encode(b->tokenizer, text, &j->ids, err));
        if (j->n_left_out) TERN_TRY(find_left_out(b, j, err));
        drop_end(b, j);
    } else {
        if (b->begin_id >= 0) TERN_TRY(append_id(&j->ids, b->begin_id, err));
        TERN_TRY(tern_tokenizer_encode(b->tokenizer, text.ptr, text.len, TERN_TOKENIZE_PLAIN,
                                       &j->ids, err));
    }
    return append_id(&j->ids, b->shard.end_id, err);
}

static void do_jobs(void *ctx, const tern_team *team) {
    builder *b = ctx;
    size_t first, last;
    while (tern_team_claim(&b->next_job, b->n_jobs, 4, &first, &last)) {
        for (size_t i = first; i < last; i++) {
            tern_error *err = &b->errors[team->thread];
            if (err->status == TERN_OK) do_job(b, &b->jobs[i], &b->sketchers[team->thread], err);
        }
    }
}

static tern_status write_batch(builder *b) {
    for (int i = 0; i < b->team->n_threads; i++) {
        if (b->errors[i].status == TERN_OK) continue;
        if (b->err) *b->err = b->errors[i];
        return b->errors[i].status;
    }
    for (size_t i = 0; i < b->n_jobs; i++) {
        tern_verdict verdict = TERN_UNIQUE;
        if (!is_drawn(b, &b->jobs[i])) {
            b->stats->n_not_drawn += !b->pass;
            continue;
        }
        if (!b->pass) TERN_TRY(tern_dedup_check(b->dedup, &b->jobs[i].sketch, &verdict, b->err));
        b->stats->n_same += verdict == TERN_SAME;
        b->stats->n_near += verdict == TERN_NEAR;
        if (verdict == TERN_UNIQUE) TERN_TRY(write_document(b, &b->jobs[i]));
    }
    return TERN_OK;
}

static int n_passes(const builder *b) {
    double most = 1;
    for (size_t i = 0; i < tern_documents_n_sources(b->documents); i++)
        most = fmax(most, tern_documents_source(b->documents, i)->weight);
    return (int)ceil(most);
}

static tern_status read_all(builder *b, int passes) {
    const tern_data_build_desc *d = b->desc;
    for (bool more = true; more;) {
        TERN_TRY(read_batch(b, &more));
        atomic_store(&b->next_job, 0);
        tern_team_run(b->team, do_jobs, b);
        TERN_TRY(write_batch(b));
        double done = more ? tern_documents_fraction(b->documents) : 1;
        if (!tern_progress(d->on_progress, d->user, "build", (b->pass + done) / passes))
            return tern_fail(b->err, TERN_ERR_CANCELLED, "the build was cancelled");
    }
    return TERN_OK;
}

// Sources with weights above 1 are read again rather than written twice at once: windows of a shard
// are learnt together, and what is learnt twice should lie apart.
static tern_status build(builder *b) {
    int passes = n_passes(b);
    for (b->pass = 0; b->pass < passes; b->pass++) {
        if (b->pass) tern_documents_rewind(b->documents, b->pass);
        for (size_t i = 0; i < tern_documents_n_sources(b->documents); i++)
            b->counts[i].n_again = 0;
        TERN_TRY(read_all(b, passes));
    }
    TERN_TRY(end_shard(b, &b->train));
    return end_shard(b, &b->valid);
}

static tern_status write_manifest(builder *b) {
    const tern_data_manifest m = {.desc = b->desc,
                                  .stats = b->stats,
                                  .shard = &b->shard,
                                  .documents = b->documents,
                                  .counts = b->counts,
                                  .shards = tern_strbuf_text(&b->shards)};
    return tern_data_put_manifest(&b->out, &m, b->err);
}

static void tell_shares(const builder *b) {
    tern_data_share *shares = b->desc->shares;
    for (size_t i = 0; shares && i < b->desc->source.n_paths; i++) shares[i] = (tern_data_share){0};
    for (size_t i = 0; shares && i < tern_documents_n_sources(b->documents); i++) {
        const tern_document_source *s = tern_documents_source(b->documents, i);
        if (s->is_held_out) continue;
        shares[s->of_path].n_documents += b->counts[i].n_train_documents;
        shares[s->of_path].n_tokens += b->counts[i].n_train_tokens;
    }
}

// ---- What may not be meant ----------------------------------------------------------------------

// A text without the separator is one document, so all of it goes into one split: seldom intended
// for a large file, unless it is a novel.
static void notice_undivided(const builder *b) {
    size_t n = 0, n_sources = tern_documents_n_sources(b->documents);
    const tern_document_source *largest = NULL;
    const char *separator = b->desc->source.separator;
    tern_strbuf text = {0};
    for (size_t i = 0; i < n_sources; i++) {
        const tern_document_source *s = tern_documents_source(b->documents, i);
        if (!s->is_undivided || s->n_bytes == 0) continue;
        n++;
        if (!largest || s->n_bytes > largest->n_bytes) largest = s;
    }
    if (n == 0) return;
    if (n == 1)
        tern_strbuf_printf(&text, "%s is one document", largest->path);
    else
        tern_strbuf_printf(&text, "%zu text files are one document each, the largest %s", n,
                           largest->path);
    tern_strbuf_puts(&text, ": there is no ");
    tern_strbuf_json(&text, separator ? separator : "<|endoftext|>",
                     strlen(separator ? separator : "<|endoftext|>"));
    tern_strbuf_puts(&text, n == 1 ? " in it" : " in them");
    tern_strbuf_puts(&text, " (the separator is what stands between documents; an empty one says "
                            "that a file is one)");
    if (!text.failed) b->desc->on_notice(b->desc->user, text.ptr);
    tern_strbuf_free(&text);
}

static void notice(const builder *b) {
    const tern_data_build_desc *d = b->desc;
    if (!d->on_notice) return;
    notice_undivided(b);
    if (b->train.stats->n_documents == 0)
        d->on_notice(d->user, "there is nothing to train on: no document is in the split 'train'");
    else if (d->valid > 0 && b->valid.stats->n_documents == 0)
        d->on_notice(d->user, "nothing is held out: there are too few documents for that part, and "
                              "training will report no loss of text that it does not learn");
}

// ---- Before and after ---------------------------------------------------------------------------

static tern_status choose_end(builder *b) {
    static const char *const usual[] = {"<|endoftext|>", "<|end_of_text|>"};
    const tern_tokenizer *t = b->tokenizer;
    const char *wish = b->desc->end;
    int32_t id = -1;
    if (wish) id = tern_tokenizer_find(t, (tern_str){wish, strlen(wish)});
    if (wish && id < 0)
        return tern_fail(b->err, TERN_ERR_ARGUMENT, "%s: has no token '%s'", b->desc->tokenizer,
                         wish);
    for (size_t i = 0; id < 0 && i < sizeof usual / sizeof *usual; i++)
        id = tern_tokenizer_find(t, (tern_str){usual[i], strlen(usual[i])});
    if (id < 0) id = tern_tokenizer_eos(t);
    if (id < 0)
        return tern_fail(b->err, TERN_ERR_ARGUMENT, "%s: has no token that ends a text; name one",
                         b->desc->tokenizer);
    b->shard.end_id = id;
    // The token that the model will see before a text. If it is the end token, the previous
    // document's is already there.
    bool begins = tern_tokenizer_adds_bos(t) && tern_tokenizer_bos(t) != id;
    b->begin_id = begins ? tern_tokenizer_bos(t) : -1;
    return TERN_OK;
}

static tern_status open_builder(builder *b) {
    const tern_data_build_desc *d = b->desc;
    tern_dedup_desc dedup = {
        .exact = !d->keep_exact,
        .near = d->drop_near,
        .threshold = d->threshold ? d->threshold : 0.8,
        .n_bytes_max = d->memory < SIZE_MAX ? (size_t)d->memory : SIZE_MAX,
    };
    TERN_TRY(tern_file_open(&b->file, d->tokenizer, b->err));
    TERN_TRY(tern_tokenizer_open(&b->tokenizer, b->file, b->err));
    TERN_TRY(tern_data_add_tokens(d, b->file, &b->tokenizer, b->stats, b->err));
    b->shard.n_vocab = (uint32_t)tern_tokenizer_n_vocab(b->tokenizer);
    b->shard.tokenizer_hash = tern_tokenizer_hash(b->tokenizer);
    TERN_TRY(choose_end(b));
    TERN_TRY(tern_dedup_open(&b->dedup, &dedup, b->err));
    TERN_TRY(tern_documents_open(&b->documents, &d->source, b->err));
    TERN_TRY(tern_team_open(&b->team, d->n_threads, b->err));
    size_t n_threads = (size_t)b->team->n_threads;
    size_t n_sources = tern_documents_n_sources(b->documents);
    b->sketchers = tern_alloc_array(TERN_MEM_MISC, n_threads, sizeof *b->sketchers);
    b->errors = tern_alloc_array(TERN_MEM_MISC, n_threads, sizeof *b->errors);
    b->jobs = tern_alloc_array(TERN_MEM_MISC, BATCH_DOCUMENTS, sizeof *b->jobs);
    b->counts = tern_alloc_array(TERN_MEM_MISC, n_sources, sizeof *b->counts);
    if (!b->sketchers || !b->errors || !b->jobs || !b->counts)
        return tern_fail_memory(b->err, BATCH_DOCUMENTS * sizeof *b->jobs);
    return TERN_OK;
}

static void close_builder(builder *b) {
    tern_shard_writer_free(b->train.writer);
    tern_shard_writer_free(b->valid.writer);
    tern_out_close(&b->out);
    for (int i = 0; b->sketchers && i < b->team->n_threads; i++) tern_free(b->sketchers[i].words);
    for (size_t i = 0; b->jobs && i < BATCH_DOCUMENTS; i++) {
        tern_free(b->jobs[i].ids.ids);
        tern_free(b->jobs[i].spans.list);
    }
    tern_free(b->left_out);
    tern_free(b->sketchers);
    tern_free(b->errors);
    tern_free(b->jobs);
    tern_free(b->counts);
    tern_free(b->taken);
    tern_strbuf_free(&b->texts);
    tern_strbuf_free(&b->shards);
    if (b->team) tern_team_close(b->team);
    tern_documents_close(b->documents);
    tern_dedup_close(b->dedup);
    tern_template_free(b->template);
    tern_tokenizer_free(b->tokenizer);
    if (b->file) tern_file_close(b->file);
}

// Surplus shards and another tokenizer from an earlier build would be taken for this build's.
static tern_status remove_old(builder *b) {
    static const char *const companions[] = {"tokenizer.json", "tokenizer_config.json",
                                             "chat_template.jinja", "tokenizer.gguf"};
    tern_names old = {0};
    tern_status status = tern_folder_list(&old, b->folder, "", ".tern", b->err);
    for (size_t i = 0; status == TERN_OK && i < old.n; i++) {
        const char *name = old.list[i];
        bool ours = !strncmp(name, "train-", 6) || !strncmp(name, "valid-", 6);
        if (ours && !tern_out_has(&b->out, name)) status = tern_out_remove(&b->out, name, b->err);
    }
    for (size_t i = 0; status == TERN_OK && i < sizeof companions / sizeof *companions; i++)
        if (!tern_out_has(&b->out, companions[i]))
            status = tern_out_remove(&b->out, companions[i], b->err);
    tern_names_free(&old);
    return status;
}

tern_status tern_data_build(const char *folder, const tern_data_build_desc *desc,
                            tern_data_build_stats *stats, tern_error *err) {
    tern_clear(err);
    tern_data_build_stats unused;
    double start = tern_seconds();
    if (!stats) stats = &unused;
    *stats = (tern_data_build_stats){0};
    TERN_NEED(folder);
    TERN_NEED(desc);
    TERN_NEED(desc->tokenizer);
    TERN_NEED_EACH(desc->source.paths, desc->source.n_paths);
    TERN_NEED_EACH(desc->source.held_out, desc->source.n_held_out);
    if (!*folder || !(desc->valid >= 0 && desc->valid <= 1))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "building needs texts, a tokenizer, a folder and "
                         "a held-out part between 0 and 1");
    for (size_t i = 0; desc->source.weights && i < desc->source.n_paths; i++)
        if (!(desc->source.weights[i] > 0 && desc->source.weights[i] <= 100))
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "%s: a weight of %g: expected one above 0, at most 100",
                             desc->source.paths[i], desc->source.weights[i]);
    builder b = {.folder = folder,
                 .desc = desc,
                 .stats = stats,
                 .err = err,
                 .train = {.name = "train", .stats = &stats->train},
                 .valid = {.name = "valid", .stats = &stats->valid}};
    tern_status status = open_builder(&b);
    if (status == TERN_OK) status = tern_out_open(&b.out, folder, true, err);
    if (status == TERN_OK) status = tern_data_put_tokenizer(&b.out, b.file, desc->tokenizer, err);
    if (status == TERN_OK) status = build(&b);
    if (status == TERN_OK) status = write_manifest(&b);
    if (status == TERN_OK) status = remove_old(&b);
    if (status == TERN_OK) status = tern_out_commit(&b.out, "manifest.json", err);
    if (status == TERN_OK) notice(&b);
    if (status == TERN_OK) tell_shares(&b);
    close_builder(&b);
    stats->seconds = tern_seconds() - start;
    return status;
}
