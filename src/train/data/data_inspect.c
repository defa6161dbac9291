// Describes a shard: counts, lengths of its documents, the beginning of the first one.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/plain.h"
#include "formats/formats.h"
#include "formats/shard/shard.h"
#include "input/input.h"
#include "tern.h"
#include "train/data/data.h"

#define SAMPLE_MAX 65536

typedef struct report {
    const tern_shard_info *info;
    uint64_t shortest, median, longest; // documents, in tokens
    uint64_t n_used;                    // different tokens
    uint64_t n_ended;                   // documents whose last token is the end token
    uint64_t n_unscored;
    tern_strbuf sample;
    bool has_sample;
} report;

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static tern_status measure_documents(tern_shard *s, report *r, tern_error *err) {
    uint64_t n = r->info->n_documents;
    uint64_t *lengths = tern_alloc_array(TERN_MEM_MISC, (size_t)n + 1, sizeof *lengths);
    tern_status status = TERN_OK;
    if (!lengths) return tern_fail_memory(err, n * sizeof *lengths);
    for (uint64_t i = 0; i < n && status == TERN_OK; i++) {
        int32_t last = -1;
        uint64_t end = tern_shard_document(s, i + 1);
        lengths[i] = end - tern_shard_document(s, i);
        status = tern_shard_read(s, end - 1, 1, &last, err);
        r->n_ended += last == r->info->end_id;
    }
    if (n) qsort(lengths, (size_t)n, sizeof *lengths, by_size);
    if (n) r->shortest = lengths[0], r->median = lengths[n / 2], r->longest = lengths[n - 1];
    tern_free(lengths);
    return status;
}

static tern_status count_used(tern_shard *s, report *r, tern_error *err) {
    uint8_t *seen = tern_alloc(TERN_MEM_MISC, r->info->n_vocab);
    int32_t ids[1024];
    tern_status status = seen ? TERN_OK : tern_fail_memory(err, r->info->n_vocab);
    for (uint64_t at = 0; status == TERN_OK && at < r->info->n_tokens;) {
        uint64_t n = r->info->n_tokens - at < 1024 ? r->info->n_tokens - at : 1024;
        status = tern_shard_read(s, at, n, ids, err);
        for (uint64_t i = 0; status == TERN_OK && i < n; i++) {
            r->n_used += !seen[ids[i]];
            seen[ids[i]] = 1;
        }
        at += n;
    }
    tern_free(seen);
    return status;
}

// ---- The sample ---------------------------------------------------------------------------------

// Closes the file.
static tern_status decode_sample(tern_shard *s, report *r, tern_file *file, uint64_t n,
                                 tern_error *err) {
    tern_tokenizer *t = NULL;
    tern_decoder d = {.with_special = true};
    tern_status status = tern_tokenizer_open(&t, file, err);
    if (status == TERN_OK && r->info->tokenizer_hash &&
        tern_tokenizer_hash(t) != r->info->tokenizer_hash)
        status = tern_fail(err, TERN_ERR_ARGUMENT, "%s: made with another tokenizer than %s",
                           r->info->path, file->path);
    for (uint64_t i = 0; status == TERN_OK && i < n; i++) {
        int32_t id;
        status = tern_shard_read(s, i, 1, &id, err);
        if (status == TERN_OK) tern_tokenizer_decode(t, &d, id, &r->sample);
    }
    tern_tokenizer_decode_end(&d, &r->sample);
    r->has_sample = status == TERN_OK;
    tern_tokenizer_free(t);
    tern_file_close(file);
    return status;
}

static tern_status take_sample(tern_shard *s, report *r, const tern_data_inspect_desc *desc,
                               tern_error *err) {
    uint64_t n = desc->n_sample > 0 ? (uint64_t)desc->n_sample : 64;
    if (n > SAMPLE_MAX) n = SAMPLE_MAX;
    if (n > tern_shard_document(s, 1)) n = tern_shard_document(s, 1);
    tern_file *file = NULL;
    if (desc->tokenizer) {
        TERN_TRY(tern_file_open(&file, desc->tokenizer, err));
    } else {
        char *folder = tern_path_folder(r->info->path);
        if (!folder) return tern_fail_memory(err, strlen(r->info->path));
        tern_status status = tern_data_open_tokenizer(&file, folder, err);
        tern_free(folder);
        TERN_TRY(status);
    }
    return file ? decode_sample(s, r, file, n, err) : TERN_OK;
}

// ---- The report ---------------------------------------------------------------------------------

static void print_text(const report *r, tern_strbuf *out) {
    const tern_shard_info *i = r->info;
    tern_strbuf_printf(out, "%s: a shard of tokens, whole (%llu block%s of %u bytes)\n", i->path,
                       (unsigned long long)i->n_blocks, i->n_blocks == 1 ? "" : "s",
                       i->block_bytes);
    tern_strbuf_printf(out, "  tokens      %llu of %u bytes, %llu of %u different ones\n",
                       (unsigned long long)i->n_tokens, i->token_bytes,
                       (unsigned long long)r->n_used, i->n_vocab);
    tern_strbuf_printf(out, "  documents   %llu, shortest %llu, median %llu, longest %llu tokens\n",
                       (unsigned long long)i->n_documents, (unsigned long long)r->shortest,
                       (unsigned long long)r->median, (unsigned long long)r->longest);
    tern_strbuf_printf(out, "  end token   %d, after %llu document%s\n", i->end_id,
                       (unsigned long long)r->n_ended, r->n_ended == 1 ? "" : "s");
    if (i->n_spans)
        tern_strbuf_printf(out, "  not scored  %llu tokens in %u spans\n",
                           (unsigned long long)r->n_unscored, i->n_spans);
    tern_strbuf_printf(out, "  tokenizer   %016llx\n  checksum    %08x\n",
                       (unsigned long long)i->tokenizer_hash, i->checksum);
    if (!r->has_sample) return;
    tern_strbuf_puts(out, "  begins      "); // as JSON: one line, and no codes for the terminal
    tern_strbuf quoted = {0};
    tern_strbuf_json(&quoted, tern_strbuf_text(&r->sample), r->sample.len);
    tern_plain_line(tern_strbuf_text(&quoted), quoted.len, out);
    tern_strbuf_putc(out, '\n');
    out->failed |= quoted.failed;
    tern_strbuf_free(&quoted);
}

static void print_json(const report *r, tern_strbuf *out) {
    const tern_shard_info *i = r->info;
    tern_strbuf_puts(out, "{\"file\": ");
    tern_strbuf_json(out, i->path, strlen(i->path));
    tern_strbuf_printf(out,
                       ", \"tokens\": %llu, \"token_bytes\": %u, \"vocabulary\": %u, \"used\": %llu"
                       ", \"documents\": %llu, \"shortest\": %llu, \"median\": %llu, "
                       "\"longest\": %llu, \"end\": %d, \"ended\": %llu, \"unscored\": %llu, "
                       "\"tokenizer\": \"%016llx\", \"checksum\": \"%08x\", \"blocks\": %llu, "
                       "\"block_bytes\": %u",
                       (unsigned long long)i->n_tokens, i->token_bytes, i->n_vocab,
                       (unsigned long long)r->n_used, (unsigned long long)i->n_documents,
                       (unsigned long long)r->shortest, (unsigned long long)r->median,
                       (unsigned long long)r->longest, i->end_id, (unsigned long long)r->n_ended,
                       (unsigned long long)r->n_unscored, (unsigned long long)i->tokenizer_hash,
                       i->checksum, (unsigned long long)i->n_blocks, i->block_bytes);
    if (r->has_sample) {
        tern_strbuf_puts(out, ", \"begins\": ");
        tern_strbuf_json(out, tern_strbuf_text(&r->sample), r->sample.len);
    }
    tern_strbuf_puts(out, "}\n");
}

static tern_status inspect(tern_shard *s, const tern_data_inspect_desc *desc, report *r,
                           tern_strbuf *out, tern_error *err) {
    r->info = tern_shard_get_info(s);
    TERN_TRY(tern_shard_check(s, 0, r->info->n_blocks, err));
    TERN_TRY(measure_documents(s, r, err));
    for (uint32_t i = 0; i < r->info->n_spans; i++)
        r->n_unscored += tern_shard_span(s, i).end - tern_shard_span(s, i).first;
    TERN_TRY(count_used(s, r, err));
    TERN_TRY(take_sample(s, r, desc, err));
    if (desc->format == TERN_FORMAT_JSON)
        print_json(r, out);
    else
        print_text(r, out);
    return out->failed || r->sample.failed ? tern_fail_memory(err, out->len) : TERN_OK;
}

tern_status tern_data_inspect(const char *path, const tern_data_inspect_desc *desc,
                              tern_text_fn on_text, void *user, tern_error *err) {
    tern_clear(err);
    static const tern_data_inspect_desc defaults;
    report r = {0};
    tern_strbuf out = {0};
    tern_shard *s;
    if (!desc) desc = &defaults;
    if (!path || !on_text || desc->format > TERN_FORMAT_JSON)
        return tern_fail(err, TERN_ERR_ARGUMENT, "inspection is reported as text or JSON");
    TERN_TRY(tern_shard_open(&s, path, err));
    tern_status status = inspect(s, desc, &r, &out, err);
    if (status == TERN_OK && !on_text(user, out.ptr, out.len))
        status = tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    tern_shard_close(s);
    tern_strbuf_free(&out);
    tern_strbuf_free(&r.sample);
    return status;
}
