// Checkpoints: a model of float master weights, with the state that training needs to continue.
//
// The writer writes to a temporary name, syncs, and renames at the end, so a checkpoint is always a
// whole file, whenever the process dies. Every tensor has a CRC-32 in the metadata: a checkpoint
// that was damaged later is skipped, and the previous one is used.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "base/hash.h"
#include "base/os/os_file.h"
#include "tasks/tasks.h"
#include "train/trainer.h"

// ---- The files of a run ------------------------------------------------------------------------

// "FOLDER/step-00000500.gguf", or the file of moments next to it. The caller frees it.
static tern_status make_path(const char *folder, int64_t step, bool moments, char **out,
                             tern_error *err) {
    tern_strbuf path = {0};
    tern_strbuf_printf(&path, "%s/step-%08lld%s.gguf", folder, (long long)step,
                       moments ? ".adam" : "");
    *out = path.ptr;
    if (!path.failed) return TERN_OK;
    tern_strbuf_free(&path);
    *out = NULL;
    return tern_fail_memory(err, strlen(folder) + 32);
}

// The step in the name of a checkpoint, -1: another file's name.
static int64_t step_of(const char *name) {
    size_t n = strncmp(name, "step-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
    bool fits = n >= 8 && n <= 18 && strcmp(name + 5 + n, ".gguf") == 0;
    return fits ? strtoll(name + 5, NULL, 10) : -1;
}

static int by_step(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// The steps of a folder's checkpoints in rising order; free with tern_free.
static tern_status list(const char *folder, int64_t **steps, size_t *n, tern_error *err) {
    tern_names names = {0};
    *n = 0;
    TERN_TRY(tern_folder_list(&names, folder, "step-", ".gguf", err));
    tern_status status = TERN_OK;
    *steps = tern_alloc_array(TERN_MEM_MISC, names.n + 1, sizeof **steps);
    if (!*steps) status = tern_fail_memory(err, names.n * sizeof **steps);
    for (size_t i = 0; *steps && i < names.n; i++)
        if (step_of(names.list[i]) >= 0) (*steps)[(*n)++] = step_of(names.list[i]);
    if (*n) qsort(*steps, *n, sizeof **steps, by_step);
    tern_names_free(&names);
    return status;
}

tern_status tern_checkpoint_count(const char *folder, size_t *n, int64_t *newest, tern_error *err) {
    int64_t *steps;
    TERN_TRY(list(folder, &steps, n, err));
    *newest = *n ? steps[*n - 1] : 0;
    tern_free(steps);
    return TERN_OK;
}

// ---- Writing -----------------------------------------------------------------------------------

// What a file holds: a checkpoint's main one; the second one of runs whose main one is a model or
// an adapter alone, with moments, and masters of weights that the model has rounded; best.gguf.
typedef enum part { MAIN, SECOND, WEIGHTS } part;
static bool has_second(const tern_trainer *t) { return t->base || t->desc.qat; }
static bool is_rounded(const tern_slot *s) { return s->type != TERN_DTYPE_F32; }
// Whether a slot's numbers are in the main file.
static bool is_own(const tern_trainer *t, const tern_slot *s) {
    return !has_second(t) || (s->is_weight && !is_rounded(s));
}
static bool is_in(const tern_trainer *t, const tern_slot *s, part of) {
    if (!s->is_kept) return false;
    if (of == SECOND) return !is_own(t, s);
    return of == WEIGHTS ? s->is_weight : is_own(t, s) || is_rounded(s);
}

static int n_rope(const tern_trainer *t) {
    return t->base ? 0 : tern_config_n_rope_freqs(&t->config);
}

// The name of a slot's numbers: moments become "adam.m.NAME", masters "master.NAME".
static void file_name(const tern_slot *s, part of, char *out, size_t size) {
    const char *before = !s->is_weight ? "adam." : of == SECOND ? "master." : "";
    snprintf(out, size, "%s%s", before, s->name);
}

// A GGUF's tokenizer is copied unchanged, except perhaps for the token that begins a text.
static tern_status copy_tokenizer(const tern_trainer *t, tern_gguf_writer *w) {
    static const char bos[] = "tokenizer.ggml.bos_token_id", add[] = "tokenizer.ggml.add_bos_token";
    static const char eos[] = "tokenizer.ggml.eos_token_id";
    const tern_file *file = t->tokenizer_file;
    bool other = !t->has_own_bos && t->end_id >= 0;
    for (size_t i = 0; i < file->n_metas; i++) {
        const char *key = file->metas[i].key;
        bool ours = other && (strcmp(key, bos) == 0 || strcmp(key, add) == 0);
        if (tern_name_begins(key, "tokenizer.") && !ours)
            TERN_TRY(tern_gguf_put_meta(w, &file->metas[i]));
    }
    if (!other) return TERN_OK;
    TERN_TRY(tern_gguf_put_int(w, bos, TERN_META_U32, t->end_id));
    TERN_TRY(tern_gguf_put_int(w, add, TERN_META_BOOL, 1));
    if (tern_file_meta(file, eos)) return TERN_OK;
    return tern_gguf_put_int(w, eos, TERN_META_U32, t->end_id);
}

static tern_status put_tokenizer(tern_trainer *t, tern_gguf_writer *w, tern_error *err) {
    const char *chat = t->chat_template;
    if (t->tokenizer_file->kind == TERN_FILE_GGUF) return copy_tokenizer(t, w);
    TERN_TRY(tern_tokenizer_put_gguf(t->tokenizer, t->has_own_bos ? -1 : t->end_id, w, err));
    if (!chat) return TERN_OK;
    return tern_gguf_put_str(w, "tokenizer.chat_template", (tern_str){chat, strlen(chat)});
}

// What a model's file says about it, besides shape and types.
static tern_status put_facts(const tern_trainer *t, tern_gguf_writer *w, tern_error *err) {
    static const char *const others[] = {"general.architecture", "general.file_type",
                                         "general.quantization_version", "general.alignment"};
    const tern_file *file = t->tokenizer_file;
    if (!t->desc.init) return tern_gguf_put_str(w, "general.name", TERN_STR("tern"));
    if (file->kind == TERN_FILE_HF) {
        const char *name = tern_path_name(t->desc.init);
        TERN_TRY(tern_gguf_put_str(w, "general.name", (tern_str){name, strlen(name)}));
        TERN_TRY(tern_sampling_write_gguf(w, file));
        return t->contrastive ? TERN_OK : tern_prompts_write_gguf(w, file, err);
    }
    for (size_t i = 0; i < file->n_metas; i++) {
        bool other = !tern_name_begins(file->metas[i].key, "general.");
        for (int k = 0; k < 4; k++) other |= strcmp(file->metas[i].key, others[k]) == 0;
        if (!other) TERN_TRY(tern_gguf_put_meta(w, &file->metas[i]));
    }
    return TERN_OK;
}

static int64_t file_type_of(const tern_trainer *t) {
    if (t->desc.qat) return tern_dtype_file_type(t->qat);
    return tern_dtype_file_type(t->desc.bf16_masters ? TERN_DTYPE_BF16 : TERN_DTYPE_F32);
}

static tern_status put_model(tern_trainer *t, tern_gguf_writer *w, tern_error *err) {
    char arch[96];
    tern_str name = {t->arch->gguf_names[0], strlen(t->arch->gguf_names[0])};
    if (t->desc.init) // a GGUF has its own
        tern_file_meta_str(t->tokenizer_file, "general.architecture", &name);
    snprintf(arch, sizeof arch, "%.*s", (int)name.len, name.ptr);
    TERN_TRY(tern_gguf_put_str(w, "general.architecture", name));
    TERN_TRY(put_facts(t, w, err));
    TERN_TRY(tern_config_write_gguf(w, t->arch, arch, &t->config));
    if (t->desc.init) TERN_TRY(tern_arch_copy_rotation(t->tokenizer_file, w));
    TERN_TRY(tern_gguf_put_int(w, "general.file_type", TERN_META_U32, file_type_of(t)));
    if (t->contrastive) TERN_TRY(tern_prompts_write_length(w, t->desc.seq_len));
    return put_tokenizer(t, w, err);
}

// The run's progress.
typedef struct progress {
    int64_t step, n_steps, steps_in_loss, scored_in_loss, reports_due;
    tern_train_best best;
} progress;

// A checkpoint's metadata.
static uint32_t sum_state(const progress *p, tern_str run) {
    const int64_t numbers[] = {p->step, p->n_steps, p->steps_in_loss, p->scored_in_loss};
    uint32_t sum = tern_crc32(tern_crc32(0, numbers, sizeof numbers), run.ptr, run.len);
    if (p->reports_due) sum = tern_crc32(sum, &p->reports_due, sizeof p->reports_due);
    if (!p->best.is_known) return sum;
    const int64_t best[] = {p->best.step, p->best.n_since};
    return tern_crc32(tern_crc32(sum, best, sizeof best), &p->best.loss, sizeof p->best.loss);
}

static tern_status put_state(const tern_trainer *t, tern_gguf_writer *w, tern_str run) {
    progress p = {t->step,           t->desc.n_steps, t->steps_in_loss,
                  t->scored_in_loss, t->reports_due,  t->best};
    TERN_TRY(tern_gguf_put_int(w, "tern.train.step", TERN_META_I64, p.step));
    TERN_TRY(tern_gguf_put_int(w, "tern.train.n_steps", TERN_META_I64, p.n_steps));
    TERN_TRY(tern_gguf_put_int(w, "tern.train.steps_in_loss", TERN_META_I64, p.steps_in_loss));
    TERN_TRY(tern_gguf_put_int(w, "tern.train.scored_in_loss", TERN_META_I64, p.scored_in_loss));
    TERN_TRY(tern_gguf_put_str(w, "tern.train.run", run));
    if (p.reports_due)
        TERN_TRY(tern_gguf_put_int(w, "tern.train.reports_due", TERN_META_I64, p.reports_due));
    if (p.best.is_known) {
        TERN_TRY(tern_gguf_put_f32(w, "tern.train.best_valid_loss", p.best.loss));
        TERN_TRY(tern_gguf_put_int(w, "tern.train.best_step", TERN_META_I64, p.best.step));
        TERN_TRY(tern_gguf_put_int(w, "tern.train.n_since_best", TERN_META_I64, p.best.n_since));
    }
    return tern_gguf_put_int(w, "tern.train.state_crc32", TERN_META_U32, sum_state(&p, run));
}

static tern_status put_meta(tern_trainer *t, tern_gguf_writer *w, const uint32_t *sums,
                            size_t n_sums, tern_error *err) {
    tern_strbuf run = {0};
    TERN_TRY(t->base ? tern_lora_put_meta(t, w) : put_model(t, w, err));
    tern_status status = tern_identity_describe(t, &run, err);
    if (status == TERN_OK) status = put_state(t, w, (tern_str){run.ptr, run.len});
    tern_strbuf_free(&run);
    TERN_TRY(status);
    return tern_gguf_put_array(w, "tern.train.crc32", TERN_META_U32, sums, n_sums);
}

// A slot's numbers become those of the file that keeps its state: bfloat16 masters lose their lower
// halves, which are zeros. Returns the bytes.
static uint64_t narrow(const tern_slot *s, float *data) {
    const uint64_t n = s->n_rows * s->n_cols;
    uint16_t *halves = (uint16_t *)data;
    if (!s->is_bf16) return n * sizeof *data;
    for (uint64_t i = 0; i < n; i++) {
        const uint16_t half = tern_f32_to_bf16(data[i]);
        memcpy(halves + i, &half, sizeof half);
    }
    return n * sizeof *halves;
}

static tern_status slot_data(tern_trainer *t, const tern_slot *s, float **data, tern_error *err) {
    uint64_t n = s->n_rows * s->n_cols;
    *data = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof **data);
    if (!*data) return tern_fail_memory(err, n * sizeof **data);
    return t->backend->read(s->array, 0, n, *data, err);
}

// Checksums of all kept slots, or of the weights, in order; the caller frees them. A number that is
// not finite would spoil every later step, so older checkpoints are worth more than this one.
static tern_status sum_slots(tern_trainer *t, part of, uint32_t **sums, size_t *n,
                             tern_error *err) {
    *n = 0;
    *sums = tern_alloc_array(TERN_MEM_MISC, t->n_slots, sizeof **sums);
    if (!*sums) return tern_fail_memory(err, t->n_slots * sizeof **sums);
    for (size_t i = 0; i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        float *data;
        if (!is_in(t, s, of) && !(of == MAIN && is_in(t, s, SECOND))) continue;
        tern_status status = slot_data(t, s, &data, err);
        uint64_t n_data = s->n_rows * s->n_cols;
        if (status == TERN_OK && !s->is_packed && !tern_all_finite(data, n_data))
            status = tern_fail(err, TERN_ERR_DEVICE,
                               "train: %s holds a number that is not finite "
                               "after step %lld: no checkpoint of it is written",
                               s->name, (long long)t->step);
        if (status == TERN_OK) (*sums)[(*n)++] = tern_crc32(0, data, (size_t)narrow(s, data));
        tern_free(data);
        if (status != TERN_OK) return status;
    }
    return TERN_OK;
}

static tern_status write_slot(tern_trainer *t, tern_gguf_writer *w, const tern_slot *s, part of,
                              tern_error *err) {
    float *data;
    void *blocks = NULL;
    uint64_t bytes = 0;
    tern_status status = slot_data(t, s, &data, err);
    if (status == TERN_OK && of != SECOND && is_rounded(s))
        status = tern_qat_encode(t, s, data, &blocks, &bytes, err);
    else if (status == TERN_OK)
        bytes = narrow(s, data);
    if (status == TERN_OK) status = tern_gguf_write(w, blocks ? blocks : data, bytes, err);
    tern_free(blocks);
    tern_free(data);
    return status;
}

// Factors of RoPE that a folder has as numbers in its config: its graph has no weight for them.
static tern_status write_rope(const tern_trainer *t, tern_gguf_writer *w, tern_error *err) {
    const uint64_t bytes = (uint64_t)n_rope(t) * sizeof(float);
    if (bytes == 0) return TERN_OK;
    float *factors = tern_alloc(TERN_MEM_MISC, (size_t)bytes);
    if (!factors) return tern_fail_memory(err, bytes);
    tern_config_rope_freqs(&t->config, factors);
    tern_status status = tern_gguf_write(w, factors, bytes, err);
    tern_free(factors);
    return status;
}

static tern_status write_slots(tern_trainer *t, tern_gguf_writer *w, part of, tern_error *err) {
    for (size_t i = 0; i < t->n_slots; i++) {
        if (!is_in(t, &t->slots[i], of)) continue;
        TERN_TRY(write_slot(t, w, &t->slots[i], of, err));
    }
    if (of != SECOND) TERN_TRY(write_rope(t, w, err));
    return tern_gguf_writer_finish(w, err);
}

// Packed numbers are bytes in a file.
static tern_dtype type_of(const tern_slot *s, part of) {
    if (of != SECOND && is_rounded(s)) return s->type;
    if (s->is_bf16) return TERN_DTYPE_BF16;
    return s->is_packed ? TERN_DTYPE_I8 : TERN_DTYPE_F32;
}
static uint64_t n_cols_of(const tern_slot *s) {
    return s->is_packed ? s->n_cols * sizeof(float) : s->n_cols;
}

static tern_status declare_slots(tern_trainer *t, tern_gguf_writer *w, part of) {
    for (size_t i = 0; i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        const uint64_t ne[] = {n_cols_of(s), s->n_rows / s->n_parts, s->n_parts};
        const int n_dims = s->n_parts > 1 ? 3 : s->n_rows > 1 ? 2 : 1;
        char name[80];
        if (!is_in(t, s, of)) continue;
        file_name(s, of, name, sizeof name);
        TERN_TRY(tern_gguf_declare(w, name, type_of(s, of), n_dims, ne));
    }
    const uint64_t n = (uint64_t)n_rope(t);
    if (of == SECOND || n == 0) return TERN_OK;
    return tern_gguf_declare(w, "rope_freqs.weight", TERN_DTYPE_F32, 1, &n);
}

static void remove_checkpoint(const tern_trainer *t, int64_t step) {
    char *path;
    // The listed file is removed last, so that a process stopped here leaves nothing behind for
    // good.
    for (int moments = has_second(t) ? 1 : 0; moments >= 0; moments--) {
        if (make_path(t->desc.out, step, moments, &path, NULL) == TERN_OK) tern_file_remove(path);
        tern_free(path);
    }
}

// Checkpoints of later steps were skipped as damaged; they do not count.
static void remove_old(const tern_trainer *t) {
    int64_t *steps;
    size_t n;
    if (list(t->desc.out, &steps, &n, NULL) != TERN_OK) return;
    while (n > 0 && steps[n - 1] > t->step) n--;
    for (size_t i = 0; i + (size_t)t->desc.keep < n; i++) remove_checkpoint(t, steps[i]);
    tern_free(steps);
}

// sums: NULL for the second file, which has no metadata.
static tern_status write_file(tern_trainer *t, const char *path, part of, const uint32_t *sums,
                              size_t n_sums, tern_error *err) {
    tern_gguf_writer *w;
    TERN_TRY(tern_gguf_writer_open(&w, path, 0, err));
    tern_status status = sums ? put_meta(t, w, sums, n_sums, err) : TERN_OK;
    if (status == TERN_OK) status = declare_slots(t, w, of);
    if (status == TERN_OK)
        status = write_slots(t, w, of, err);
    else
        status = tern_fail(err, status, "%s: its header could not be made: %s", path,
                           tern_status_name(status));
    tern_gguf_writer_free(w);
    return status;
}

tern_status tern_checkpoint_try(tern_trainer *t, tern_error *err) {
    tern_gguf_writer *w; // creates the file with the first tensor
    tern_error reason = {0};
    if (t->desc.peft) TERN_TRY(tern_peft_can_write(t, err));
    TERN_TRY(tern_gguf_writer_open(&w, t->desc.out, 0, err));
    tern_status status = put_meta(t, w, &(uint32_t){0}, 1, &reason);
    if (status == TERN_OK) status = declare_slots(t, w, MAIN);
    tern_gguf_writer_free(w);
    if (status == TERN_OK) return status;
    return tern_fail(err, status, "train: no checkpoint of this model can be made: %s",
                     reason.message[0] ? reason.message : tern_status_name(status));
}

tern_status tern_checkpoint_write(tern_trainer *t, tern_error *err) {
    char *path = NULL, *moments = NULL;
    uint32_t *sums = NULL;
    size_t n_sums;
    tern_status status = make_path(t->desc.out, t->step, false, &path, err);
    if (status == TERN_OK) status = make_path(t->desc.out, t->step, true, &moments, err);
    if (status == TERN_OK) status = sum_slots(t, MAIN, &sums, &n_sums, err);
    if (status == TERN_OK && has_second(t)) status = write_file(t, moments, SECOND, NULL, 0, err);
    if (status == TERN_OK) status = write_file(t, path, MAIN, sums, n_sums, err);
    if (status == TERN_OK && t->desc.peft) status = tern_peft_write(t, err);
    if (status == TERN_OK) remove_old(t);
    tern_free(sums);
    tern_free(path);
    tern_free(moments);
    return status;
}

tern_status tern_checkpoint_write_weights(tern_trainer *t, const char *name, tern_error *err) {
    char *path = tern_path_join(t->desc.out, name);
    uint32_t *sums = NULL;
    size_t n_sums;
    tern_status status = path ? TERN_OK : tern_fail_memory(err, strlen(t->desc.out));
    if (status == TERN_OK) status = sum_slots(t, WEIGHTS, &sums, &n_sums, err);
    if (status == TERN_OK) status = write_file(t, path, WEIGHTS, sums, n_sums, err);
    tern_free(sums);
    tern_free(path);
    return status;
}

// ---- Resuming ----------------------------------------------------------------------------------

// Reads a checkpoint's metadata: the counters, then the identity of the run.
static tern_status read_state(const tern_trainer *t, const tern_file *file, int64_t step,
                              progress *p, tern_str *run, tern_error *err) {
    int64_t sum = 0, batch = t->desc.batch_tokens;
    if (!tern_file_meta_int(file, "tern.train.step", &p->step) ||
        !tern_file_meta_int(file, "tern.train.n_steps", &p->n_steps) ||
        !tern_file_meta_int(file, "tern.train.steps_in_loss", &p->steps_in_loss) ||
        !tern_file_meta_int(file, "tern.train.scored_in_loss", &p->scored_in_loss) ||
        !tern_file_meta_int(file, "tern.train.state_crc32", &sum) ||
        !tern_file_meta_str(file, "tern.train.run", run))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s does not say which run it is of, and how far it is", file->path);
    double loss;
    p->reports_due = 0;
    tern_file_meta_int(file, "tern.train.reports_due", &p->reports_due); // or there are none
    p->best = (tern_train_best){0};
    p->best.is_known = tern_file_meta_float(file, "tern.train.best_valid_loss", &loss) &&
                       tern_file_meta_int(file, "tern.train.best_step", &p->best.step) &&
                       tern_file_meta_int(file, "tern.train.n_since_best", &p->best.n_since);
    if (p->best.is_known) p->best.loss = (float)loss;
    if (p->step != step || (int64_t)sum_state(p, *run) != sum)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: the checksum of its step and settings is wrong",
                         file->path);
    if (p->step < 0 || p->step > p->n_steps || p->n_steps > INT64_MAX / batch ||
        p->steps_in_loss < 0 || p->steps_in_loss > p->step || p->steps_in_loss > INT32_MAX ||
        p->scored_in_loss < 0 || p->scored_in_loss > p->steps_in_loss * batch)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s: step %lld of %lld with %lld steps in its loss "
                         "is not a position of a run",
                         file->path, (long long)p->step, (long long)p->n_steps,
                         (long long)p->steps_in_loss);
    return TERN_OK;
}

static tern_status check_run(const tern_trainer *t, const char *path, tern_str run,
                             tern_error *err) {
    tern_json_doc doc = {0};
    tern_status status = tern_json_parse(&doc, run.ptr, run.len, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, path);
    status = tern_identity_check(t, &doc, tern_json_root(&doc), path, err);
    tern_json_free(&doc);
    return status;
}

static bool has_finite(const tern_slot *s, const void *data) {
    const uint64_t n = s->n_rows * s->n_cols;
    const uint16_t *halves = data;
    if (s->is_packed) return true;
    if (!s->is_bf16) return tern_all_finite(data, n);
    for (uint64_t i = 0; i < n; i++)
        if ((halves[i] & 0x7F80) == 0x7F80) return false;
    return true;
}

// The values of a slot, which the caller releases; checks shape and checksum, and that all are
// finite.
static tern_status find_numbers(const tern_file *file, const tern_slot *s, const tern_meta *sums,
                                size_t index, tern_hold *out, tern_error *err) {
    const part of = is_rounded(s) ? SECOND : MAIN; // masters, not what is made of them
    char name[80];
    double sum;
    file_name(s, of, name, sizeof name);
    const tern_tensor *x = tern_file_tensor(file, name);
    if (!x || x->type != type_of(s, of) || x->ne[0] != n_cols_of(s) ||
        x->ne[1] != s->n_rows / s->n_parts || x->ne[2] != s->n_parts)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: %s is missing or has another shape", file->path,
                         name);
    TERN_TRY(tern_blob_hold(&x->data, out, err));
    tern_status status = TERN_OK;
    if (!tern_meta_element(sums, index, &sum) ||
        (double)tern_crc32(0, out->data, (size_t)x->bytes) != sum)
        status =
            tern_fail(err, TERN_ERR_FORMAT, "%s: the checksum of %s is wrong", file->path, name);
    else if (!has_finite(s, out->data))
        status = tern_fail(err, TERN_ERR_FORMAT, "%s: %s holds a number that is not finite",
                           file->path, name);
    if (status != TERN_OK) tern_blob_release(out);
    return status;
}

static tern_status take_numbers(tern_trainer *t, const tern_slot *s, const void *data,
                                tern_error *err) {
    const uint64_t n = s->n_rows * s->n_cols;
    const uint16_t *halves = data;
    if (!s->is_bf16) return t->backend->write(s->array, 0, n, data, err);
    float *numbers = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *numbers);
    if (!numbers) return tern_fail_memory(err, n * sizeof *numbers);
    for (uint64_t i = 0; i < n; i++) numbers[i] = tern_bf16_to_f32(halves[i]);
    tern_status status = t->backend->write(s->array, 0, n, numbers, err);
    tern_free(numbers);
    return status;
}

// Everything is checked before anything is changed. moments: an adapter's second file.
static tern_status load(tern_trainer *t, const tern_file *file, const tern_file *moments,
                        const progress *p, tern_error *err) {
    const tern_meta *sums = tern_file_meta(file, "tern.train.crc32");
    tern_hold x;
    if (!sums) return tern_fail(err, TERN_ERR_FORMAT, "%s: has no checksums", file->path);
    for (int pass = 0; pass < 2; pass++) {
        size_t index = 0;
        for (size_t i = 0; i < t->n_slots; i++) {
            const tern_slot *s = &t->slots[i];
            if (!s->is_kept) continue;
            TERN_TRY(find_numbers(is_own(t, s) ? file : moments, s, sums, index++, &x, err));
            tern_status status = pass == 1 ? take_numbers(t, s, x.data, err) : TERN_OK;
            tern_blob_release(&x);
            TERN_TRY(status);
        }
    }
    t->step = p->step;
    t->best = p->best;
    t->steps_in_loss = (int32_t)p->steps_in_loss;
    t->reports_due = (int32_t)p->reports_due & TERN_DUE_ALL;
    t->scored_in_loss = p->scored_in_loss;
    tern_train_set_steps(&t->desc, t->wished_steps ? t->wished_steps : p->n_steps,
                         t->wished_warmup);
    return TERN_OK;
}

static tern_status load_both(tern_trainer *t, const tern_file *file, const progress *p,
                             tern_error *err) {
    char *path = NULL;
    tern_file *moments = NULL;
    tern_status status = TERN_OK;
    if (has_second(t)) status = make_path(t->desc.out, p->step, true, &path, err);
    if (status == TERN_OK && has_second(t)) status = tern_file_open(&moments, path, err);
    if (status == TERN_OK) status = load(t, file, moments, p, err);
    if (moments) tern_file_close(moments);
    tern_free(path);
    return status;
}

static tern_status resume_from(tern_trainer *t, int64_t step, tern_error *err) {
    char *path;
    tern_file *file = NULL;
    progress p;
    tern_str run;
    TERN_TRY(make_path(t->desc.out, step, false, &path, err));
    tern_status status = tern_file_open(&file, path, err);
    if (status == TERN_OK) status = read_state(t, file, step, &p, &run, err);
    if (status == TERN_OK) status = check_run(t, path, run, err);
    if (status == TERN_OK) status = load_both(t, file, &p, err);
    if (file) tern_file_close(file);
    tern_free(path);
    return status;
}

// The step of the weights in a file, -1: it is damaged, or has none.
static tern_status step_in(const char *path, int64_t *step, tern_error *err) {
    tern_file *file;
    *step = -1;
    const tern_status status = tern_file_open(&file, path, err);
    if (status == TERN_ERR_MEMORY || status == TERN_ERR_IO) return status;
    if (status != TERN_OK) return TERN_OK;
    if (!tern_file_meta_int(file, "tern.train.step", step)) *step = -1;
    tern_file_close(file);
    return TERN_OK;
}

tern_status tern_checkpoint_check_best(tern_trainer *t, tern_error *err) {
    char *path = tern_path_join(t->desc.out, "best.gguf");
    int64_t step = -1;
    tern_status status = TERN_OK;
    if (!path) return tern_fail_memory(err, strlen(t->desc.out));
    if (t->best.is_known && t->best.step == t->step && t->step > 0 && !t->desc.no_best) {
        status = tern_checkpoint_write_weights(t, "best.gguf", err);
    } else if (tern_path_look(path) != TERN_PATH_NONE) {
        status = step_in(path, &step, err);
        const bool is_best = t->best.is_known && step == t->best.step;
        if (status == TERN_OK && !is_best) tern_file_remove(path);
    }
    tern_free(path);
    return status;
}

tern_status tern_checkpoint_resume(tern_trainer *t, bool *found, tern_error *err) {
    int64_t *steps;
    size_t n;
    *found = false;
    TERN_TRY(list(t->desc.out, &steps, &n, err));
    tern_status status = TERN_OK;
    for (size_t i = n; i-- > 0 && !*found;) {
        status = resume_from(t, steps[i], err);
        *found = status == TERN_OK;
        // If this one is damaged, an older one may be usable; if it belongs to another run, none
        // is.
        if (status != TERN_OK && status != TERN_ERR_FORMAT && status != TERN_ERR_IO) break;
        t->n_damaged += !*found;
    }
    // A run that was stopped while it removed old ones may never write another one.
    if (*found) remove_old(t);
    tern_free(steps);
    return status;
}
