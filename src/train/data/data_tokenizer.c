// Learns a vocabulary from the user's text.
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/os/os_file.h"
#include "base/os/os_time.h"
#include "formats/formats.h"
#include "input/input.h"
#include "tern.h"
#include "train/data/data.h"

#define PROGRESS_BYTES ((uint64_t)4 << 20) // between two reports

static const char *const own_specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
#define N_OWN (sizeof own_specials / sizeof *own_specials)

// The files that transformers needs besides tokenizer.json. The chat template is ChatML, which the
// special tokens are for.
static const char config_head[] =
    "{\n"
    "  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
    "  \"bos_token\": \"<|endoftext|>\",\n"
    "  \"eos_token\": \"<|endoftext|>\",\n"
    "  \"clean_up_tokenization_spaces\": false,\n"
    "  \"chat_template\": \"{% for message in messages %}{{ '<|im_start|>' + message['role'] + "
    "'\\\\n' + message['content'] + '<|im_end|>\\\\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\\\n' }}{% endif %}\",\n"
    "  \"add_bos_token\": ";

// ---- Beside shards ------------------------------------------------------------------------------

static tern_status has(const char *folder, const char *name, char **path, tern_error *err) {
    *path = tern_path_join(folder, name);
    if (!*path) return tern_fail_memory(err, strlen(folder) + strlen(name) + 2);
    if (tern_path_look(*path)) return TERN_OK;
    tern_free(*path);
    *path = NULL;
    return TERN_OK;
}

tern_status tern_data_open_tokenizer(tern_file **out, const char *folder, tern_error *err) {
    char *json, *gguf = NULL;
    *out = NULL;
    TERN_TRY(has(folder, "tokenizer.json", &json, err));
    tern_status status = json ? tern_file_open(out, folder, err) // with its companion files
                              : has(folder, "tokenizer.gguf", &gguf, err);
    if (status == TERN_OK && gguf) status = tern_file_open(out, gguf, err);
    tern_free(json);
    tern_free(gguf);
    return status;
}

// All parts of a model's tokenizer, and those that may decide its chat template.
static tern_status put_gguf(tern_out_set *set, const tern_file *file, tern_error *err) {
    tern_gguf_writer *w;
    TERN_TRY(tern_gguf_writer_open(&w, "tokenizer.gguf", 0, err));
    for (size_t i = 0; i < file->n_metas; i++) {
        const char *key = file->metas[i].key;
        if (!strncmp(key, "tokenizer.", 10) || !strcmp(key, "general.architecture") ||
            !strcmp(key, "general.name"))
            tern_gguf_put_meta(w, &file->metas[i]);
    }
    tern_status status = tern_gguf_writer_put_in(w, set, "tokenizer.gguf", err);
    tern_gguf_writer_free(w);
    return status;
}

// A file of the folder that the tokenizer came from, copied byte by byte if it exists.
static tern_status copy_file(tern_out_set *set, const char *folder, const char *name,
                             tern_error *err) {
    tern_strbuf text = {0};
    tern_stream *from;
    char *path, piece[4096];
    size_t n = 1;
    TERN_TRY(has(folder, name, &path, err));
    if (!path) return TERN_OK;
    tern_status status = tern_stream_open(&from, path, err);
    while (status == TERN_OK && n > 0) {
        status = tern_stream_read(from, piece, sizeof piece, &n, err);
        if (status == TERN_OK) tern_strbuf_append(&text, piece, n);
    }
    tern_stream_close(from);
    if (status == TERN_OK && text.failed) status = tern_fail_memory(err, text.len);
    if (status == TERN_OK) status = tern_out_put(set, name, tern_strbuf_text(&text), text.len, err);
    tern_strbuf_free(&text);
    tern_free(path);
    return status;
}

tern_status tern_data_put_tokenizer(tern_out_set *set, const tern_file *file, const char *path,
                                    tern_error *err) {
    tern_str json = file->tokenizer_json;
    if (file->kind == TERN_FILE_GGUF) return put_gguf(set, file, err);
    if (json.len)
        TERN_TRY(tern_out_put(set, "tokenizer.json", json.ptr, json.len, err));
    else
        TERN_TRY(tern_out_put(set, "tokenizer.model", file->tokenizer_model.ptr,
                              file->tokenizer_model.len, err));
    if (!tern_folder_is(path)) return TERN_OK;
    TERN_TRY(copy_file(set, path, "tokenizer_config.json", err));
    return copy_file(set, path, "chat_template.jinja", err);
}

// ---- Learning -----------------------------------------------------------------------------------

static tern_status count_words(tern_bpe_trainer *trainer, const tern_data_tokenizer_desc *desc,
                               uint64_t *n_documents, tern_error *err) {
    tern_documents *documents;
    uint64_t n_since = 0;
    TERN_TRY(tern_documents_open(&documents, &desc->source, err));
    tern_status status = TERN_OK;
    for (bool more = true; status == TERN_OK;) {
        tern_document document;
        status = tern_documents_next(documents, &document, &more, err);
        if (status != TERN_OK || !more) break;
        status = tern_bpe_trainer_add(trainer, document.text.ptr, document.text.len, err);
        ++*n_documents;
        n_since += document.text.len;
        if (status != TERN_OK || n_since < PROGRESS_BYTES) continue;
        n_since = 0;
        if (!tern_progress(desc->on_progress, desc->user, "count",
                           tern_documents_fraction(documents)))
            status = tern_fail(err, TERN_ERR_CANCELLED, "the learning was cancelled");
    }
    tern_documents_close(documents);
    return status;
}

// An existing path is a file or a folder; a new name is a file's if it has the extension of this
// kind of file.
static bool is_folder_name(const char *out) {
    static const char ending[] = ".json";
    size_t n = strlen(out);
    tern_path_kind kind = tern_path_look(out);
    if (kind) return kind == TERN_PATH_FOLDER;
    return n < sizeof ending || strcmp(out + n - (sizeof ending - 1), ending) != 0;
}

static tern_status write_files(const char *out, const tern_strbuf *json, bool adds_bos,
                               tern_error *err) {
    if (!is_folder_name(out)) return tern_file_write(out, json->ptr, json->len, err);
    tern_out_set set;
    tern_strbuf text = {0};
    tern_strbuf_printf(&text, "%s%s\n}\n", config_head, adds_bos ? "true" : "false");
    tern_status status = tern_out_open(&set, out, true, err);
    if (status == TERN_OK && text.failed) status = tern_fail_memory(err, sizeof config_head);
    if (status == TERN_OK)
        status = tern_out_put(&set, "tokenizer_config.json", text.ptr, text.len, err);
    if (status == TERN_OK) status = tern_out_put(&set, "tokenizer.json", json->ptr, json->len, err);
    if (status == TERN_OK) status = tern_out_commit(&set, "tokenizer.json", err);
    tern_out_close(&set);
    tern_strbuf_free(&text);
    return status;
}

static tern_status learn(const char *out, const tern_data_tokenizer_desc *desc,
                         tern_bpe_trainer *trainer, tern_data_tokenizer_stats *stats,
                         tern_error *err) {
    tern_strbuf json = {0};
    double start = tern_seconds();
    TERN_TRY(count_words(trainer, desc, &stats->n_documents, err));
    stats->count_seconds = tern_seconds() - start;
    tern_status status = tern_bpe_trainer_finish(trainer, &json, err);
    stats->learn_seconds = tern_seconds() - start - stats->count_seconds;
    if (status == TERN_OK) status = write_files(out, &json, !desc->no_bos, err);
    tern_strbuf_free(&json);
    tern_bpe_stats s = tern_bpe_trainer_stats(trainer);
    stats->n_bytes = s.n_bytes;
    stats->n_words = s.n_words;
    stats->n_different_words = s.n_different;
    stats->n_forgotten_words = s.n_forgotten;
    stats->n_vocab = (int32_t)s.n_tokens;
    return status;
}

tern_status tern_data_tokenizer(const char *out, const tern_data_tokenizer_desc *desc,
                                tern_data_tokenizer_stats *stats, tern_error *err) {
    tern_clear(err);
    tern_data_tokenizer_stats unused;
    if (!stats) stats = &unused;
    *stats = (tern_data_tokenizer_stats){0};
    TERN_NEED(out);
    TERN_NEED(desc);
    TERN_NEED_EACH(desc->source.paths, desc->source.n_paths);
    TERN_NEED_EACH(desc->source.held_out, desc->source.n_held_out);
    TERN_NEED_EACH(desc->specials, desc->n_specials);
    if (!*out || desc->n_specials > 1000)
        return tern_fail(err, TERN_ERR_ARGUMENT, "learning a tokenizer needs texts and a name");
    const char **specials =
        tern_alloc_array(TERN_MEM_MISC, N_OWN + desc->n_specials, sizeof *specials);
    if (!specials) return tern_fail_memory(err, desc->n_specials * sizeof *specials);
    memcpy(specials, own_specials, sizeof own_specials);
    for (size_t i = 0; i < desc->n_specials; i++) specials[N_OWN + i] = desc->specials[i];
    tern_bpe_desc bpe = {
        .n_vocab = desc->n_vocab ? desc->n_vocab : 4096,
        .pre = desc->split,
        .specials = specials,
        .n_specials = N_OWN + desc->n_specials,
        .n_bytes_max = desc->memory < SIZE_MAX ? (size_t)desc->memory : SIZE_MAX,
        .no_bos = desc->no_bos,
        .on_progress = desc->on_progress,
        .user = desc->user,
    };
    tern_bpe_trainer *trainer = NULL;
    tern_status status = tern_bpe_trainer_open(&trainer, &bpe, err);
    if (status == TERN_OK) status = learn(out, desc, trainer, stats, err);
    tern_bpe_trainer_free(trainer);
    tern_free(specials);
    return status;
}
