// What a folder of tern_ternarize was begun with: another model, text or setting would mix two runs
// in its files, so it is refused by name. Texts and models count by what is in them, not by their
// paths; how it is computed (device, threads, tokens at once) may change.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/hash.h"
#include "train/data/data.h"
#include "train/ternarize/ternarize.h"

// The beginning of each tensor: a whole model would take as long as reading it.
#define TENSOR_BYTES ((size_t)64 << 10)
#define PIECE_BYTES  ((size_t)1 << 20)

// ---- The model ---------------------------------------------------------------------------------

static tern_status sum_tensors(const tern_file *file, uint8_t *room, uint32_t *sum,
                               tern_error *err) {
    for (size_t i = 0; i < file->n_tensors; i++) {
        const tern_tensor *t = &file->tensors[i];
        const size_t n = t->bytes < TENSOR_BYTES ? (size_t)t->bytes : TENSOR_BYTES;
        TERN_TRY(tern_blob_read(&t->data, 0, n, room, err));
        *sum = tern_crc32(*sum, t->name, strlen(t->name));
        *sum = tern_crc32(*sum, t->ne, sizeof t->ne);
        *sum = tern_crc32(*sum, room, n);
    }
    return TERN_OK;
}

static tern_status put_model(tern_ternarizing *j, const tern_file *file,
                             const tern_tokenizer *tokenizer, uint8_t *room) {
    uint32_t sum = 0;
    TERN_TRY(sum_tensors(file, room, &sum, j->err));
    tern_strbuf_printf(&j->identity, "{\"model\":\"%zu tensors, %08x\",\"tokenizer\":\"%016llx\"",
                       file->n_tensors, sum, (unsigned long long)tern_tokenizer_hash(tokenizer));
    return TERN_OK;
}

// ---- The texts ---------------------------------------------------------------------------------

static tern_status sum_file(const tern_ternarizing *j, const char *path, uint8_t *room,
                            uint64_t *n_bytes, uint32_t *sum) {
    int fd;
    uint64_t size;
    int64_t n = 1;
    TERN_TRY(tern_file_open_regular(&fd, path, &size, j->err));
    while (n > 0) {
        n = tern_fd_read(fd, room, PIECE_BYTES);
        if (n > 0) *sum = tern_crc32(*sum, room, (size_t)n);
        *n_bytes += n > 0 ? (uint64_t)n : 0;
        if (tern_is_cancelled()) break;
    }
    tern_fd_close(fd);
    if (n < 0) return tern_fail(j->err, TERN_ERR_IO, "%s: cannot be read", path);
    return n == 0 ? TERN_OK : tern_fail(j->err, TERN_ERR_CANCELLED, "ternarize: stopped");
}

static tern_status sum_texts(const tern_ternarizing *j, const tern_documents *d, bool held_out,
                             uint8_t *room, tern_strbuf *out) {
    uint64_t n_bytes = 0;
    uint32_t sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < tern_documents_n_sources(d); i++) {
        const tern_document_source *s = tern_documents_source(d, i);
        if (s->is_held_out != held_out) continue;
        TERN_TRY(sum_file(j, s->path, room, &n_bytes, &sum));
        sum = tern_crc32(sum, &s->weight, sizeof s->weight);
        n++;
    }
    tern_strbuf_printf(out, "%zu file%s of %llu bytes, %08x", n, n == 1 ? "" : "s",
                       (unsigned long long)n_bytes, sum);
    return TERN_OK;
}

static void put_text(tern_strbuf *out, const char *key, const char *value) {
    tern_strbuf_printf(out, ",\"%s\":", key);
    tern_strbuf_json(out, value ? value : "", value ? strlen(value) : 0);
}

static tern_status put_answers(tern_ternarizing *j, uint8_t *room) {
    const char *prompts = j->desc->prompts;
    uint64_t n_bytes = 0;
    uint32_t sum = 0;
    if (prompts) TERN_TRY(sum_file(j, prompts, room, &n_bytes, &sum));
    tern_strbuf_printf(&j->identity, ",\"answers\":%lld,\"prompts\":\"%llu bytes, %08x\"",
                       (long long)j->desc->n_answers, (unsigned long long)n_bytes, sum);
    return TERN_OK;
}

static tern_status put_texts(tern_ternarizing *j, uint8_t *room) {
    const tern_data_source *s = &j->desc->source;
    tern_documents *d;
    tern_strbuf data = {0}, held_out = {0};
    TERN_TRY(tern_documents_open(&d, s, j->err));
    tern_status status = sum_texts(j, d, false, room, &data);
    if (status == TERN_OK) status = sum_texts(j, d, true, room, &held_out);
    if (status == TERN_OK) status = put_answers(j, room);
    put_text(&j->identity, "data", data.ptr);
    put_text(&j->identity, "held_out", held_out.ptr);
    put_text(&j->identity, "separator", s->separator);
    put_text(&j->identity, "field", s->field);
    j->identity.failed |= data.failed || held_out.failed;
    tern_strbuf_free(&data);
    tern_strbuf_free(&held_out);
    tern_documents_close(d);
    return status;
}

// ---- The settings ------------------------------------------------------------------------------

static void put_number(tern_strbuf *out, const char *key, double value) {
    tern_strbuf_printf(out, ",\"%s\":%.9g", key, value);
}

static void put_settings(tern_ternarizing *j) {
    static const char *const optimizers[2][3] = {
        {"adamw", "adamw8bit", "muon"},
        {"adamw, bf16 masters", "adamw8bit, bf16 masters", "muon, bf16 masters"}};
    static const char *const starts[2][2] = {{"rtn", "gptq"}, {"rtn, rotate", "gptq, rotate"}};
    static const char *const schedules[] = {"auto", "two-stage", "cosine", "constant"};
    static const char *const packings[] = {"wrapped", "bfd", "none"};
    const tern_train_desc *t = &j->settled;
    tern_strbuf *out = &j->identity;
    char type[64];
    int n = snprintf(type, sizeof type, "%s", tern_type_name(j->type));
    if (t->qat_warmup)
        snprintf(type + n, sizeof type - (size_t)n, ", warmup %lld", (long long)t->qat_warmup);
    put_text(out, "type", type);
    put_text(out, "start", starts[j->desc->rotate][j->is_gptq]);
    put_number(out, "valid", j->desc->valid);
    put_number(out, "steps", (double)j->heal.n_steps);
    put_number(out, "batch_tokens", t->batch_tokens);
    put_number(out, "seq_len", t->seq_len);
    put_number(out, "rate", (double)t->rate);
    put_number(out, "warmup", (double)j->heal.n_warmup);
    put_text(out, "schedule", schedules[t->schedule]);
    put_text(out, "optimizer", optimizers[t->bf16_masters][t->optimizer]);
    put_number(out, "weight_decay", (double)t->weight_decay);
    put_number(out, "clip", (double)t->clip);
    put_number(out, "kd_ratio", (double)t->kd_ratio);
    put_number(out, "temperature", (double)t->temperature);
    put_number(out, "teacher_cache", t->teacher_cache != NULL);
    put_number(out, "teacher_top_k", t->teacher_top_k);
    put_number(out, "teacher_tail", t->teacher_tail);
    put_text(out, "packing", packings[t->packing]);
    put_number(out, "in_order", t->in_order);
    put_number(out, "assistant_only", t->assistant_only);
    put_text(out, "freeze", t->freeze);
    put_number(out, "layer_rate_decay", (double)t->layer_rate_decay);
    put_number(out, "embedding_rate", (double)t->embedding_rate);
    put_number(out, "valid_every", t->valid_every);
    put_number(out, "valid_tokens", t->valid_tokens);
    put_number(out, "early_stopping_patience", t->early_stopping_patience);
    put_number(out, "measure_tokens", j->desc->measure_tokens);
    tern_strbuf_printf(out, ",\"seed\":\"%llu\"}", (unsigned long long)t->seed);
}

tern_status tern_ternarize_identify(tern_ternarizing *j, const tern_file *model,
                                    const tern_tokenizer *tokenizer) {
    uint8_t *room = tern_alloc(TERN_MEM_MISC, PIECE_BYTES);
    if (!room) return tern_fail_memory(j->err, PIECE_BYTES);
    tern_status status = put_model(j, model, tokenizer, room);
    if (status == TERN_OK) status = put_texts(j, room);
    tern_free(room);
    if (status != TERN_OK) return status;
    put_settings(j);
    return j->identity.failed ? tern_fail_memory(j->err, j->identity.len) : TERN_OK;
}

// ---- Comparing ---------------------------------------------------------------------------------

static tern_status compare(const tern_ternarizing *j, const char *path) {
    tern_blob_file *file;
    tern_blob blob;
    tern_hold held = {0};
    tern_json_doc doc = {0};
    TERN_TRY(tern_blob_open(&file, path, false, &blob, j->err));
    tern_status status = tern_blob_hold(&blob, &held, j->err);
    if (status == TERN_OK)
        status = tern_json_parse(&doc, (const char *)held.data, (size_t)blob.n, j->err);
    if (status == TERN_OK)
        status = tern_identity_compare(&j->identity, &doc, tern_json_root(&doc), j->work, j->err);
    tern_json_free(&doc);
    tern_blob_release(&held);
    tern_blob_close(file);
    return status;
}

tern_status tern_ternarize_check_identity(const tern_ternarizing *j) {
    char *path = tern_path_join(j->work, "ternarize.json");
    if (!path) return tern_fail_memory(j->err, strlen(j->work));
    tern_status status = tern_path_look(path) != TERN_PATH_NONE
                             ? compare(j, path)
                             : tern_file_write(path, j->identity.ptr, j->identity.len, j->err);
    tern_free(path);
    return status;
}
