// Checkpoints: a model of float master weights, with what training needs to go on.
//
// The writer brings everything to the disk under another name and renames at the end, so a name is
// always a whole file, whenever the process dies. Every tensor has a CRC-32 in the metadata: a
// checkpoint that was damaged later is passed over, and the one before it is taken.
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "train/trainer.h"

// ---- Settings that must be the same ------------------------------------------------------------

#define N_SETTINGS     11
#define N_SETTINGS_MAX (N_SETTINGS + 4)
typedef struct setting {
    const char *key;
    int64_t value;
} setting;

// Returns how many.
static int settings_of(const tern_trainer *t, setting s[N_SETTINGS_MAX]) {
    const tern_train_desc *d = &t->desc;
    const setting all[N_SETTINGS] = {
        {"tern.train.recipe", d->recipe},        {"tern.train.schedule", d->schedule},
        {"tern.train.seq_len", d->seq_len},      {"tern.train.batch_tokens", d->batch_tokens},
        {"tern.train.n_steps", d->n_steps},      {"tern.train.n_warmup", d->n_warmup},
        {"tern.train.seed", (int64_t)d->seed},   {"tern.train.n_vocab", t->config.n_vocab},
        {"tern.train.n_embd", t->config.n_embd}, {"tern.train.n_layers", t->config.n_layers},
        {"tern.train.act", t->config.act}};
    memcpy(s, all, sizeof all);
    int n = N_SETTINGS;
    s[n++] = (setting){"tern.train.assistant_only", d->assistant_only};
    if (!t->base) return n;
    s[n++] = (setting){"tern.train.lora_rank", d->lora_rank};
    s[n++] = (setting){"tern.train.lora_targets", tern_lora_targets(t->base)};
    s[n++] = (setting){"tern.train.base", tern_lora_base_sum(t->base)};
    return n;
}

// ---- Writing -----------------------------------------------------------------------------------

// Whether a slot stands in the checkpoint's own file; the rest of an adapter's stands beside it.
static bool is_own(const tern_trainer *t, const tern_slot *s) { return !t->base || s->is_weight; }

// A slot's name in the file: moments become "adam.m.NAME".
static void file_name(const tern_slot *s, char *out, size_t size) {
    bool own = !s->is_weight;
    snprintf(out, size, "%s%s", own ? "adam." : "", s->name);
}

static tern_status put_model(tern_trainer *t, tern_gguf_writer *w, tern_error *err) {
    const char *arch = t->arch->gguf_names[0];
    TERN_TRY(tern_gguf_put_str(w, "general.architecture", (tern_str){arch, strlen(arch)}));
    TERN_TRY(tern_gguf_put_str(w, "general.name", TERN_STR("tern")));
    TERN_TRY(tern_config_write_gguf(w, arch, &t->config));
    TERN_TRY(tern_gguf_put_int(w, "general.file_type", TERN_META_U32, 0));
    TERN_TRY(tern_tokenizer_put_gguf(t->tokenizer, t->end_id, w, err));
    const char *chat = t->chat_template;
    if (chat)
        TERN_TRY(tern_gguf_put_str(w, "tokenizer.chat_template", (tern_str){chat, strlen(chat)}));
    return TERN_OK;
}

static tern_status put_meta(tern_trainer *t, tern_gguf_writer *w, const uint32_t *sums,
                            size_t n_sums, tern_error *err) {
    setting settings[N_SETTINGS_MAX];
    int n = settings_of(t, settings);
    TERN_TRY(t->base ? tern_lora_put_meta(t, w) : put_model(t, w, err));
    TERN_TRY(tern_gguf_put_int(w, "tern.train.step", TERN_META_I64, t->step));
    TERN_TRY(tern_gguf_put_int(w, "tern.train.steps_in_loss", TERN_META_I64, t->steps_in_loss));
    TERN_TRY(
        tern_gguf_put_int(w, "tern.train.scored_in_loss", TERN_META_I64, t->scored_in_loss));
    for (int i = 0; i < n; i++)
        TERN_TRY(tern_gguf_put_int(w, settings[i].key, TERN_META_I64, settings[i].value));
    return tern_gguf_put_array(w, "tern.train.crc32", TERN_META_U32, sums, n_sums);
}

static tern_status slot_data(tern_trainer *t, const tern_slot *s, float **data, tern_error *err) {
    uint64_t n = s->n_rows * s->n_cols;
    *data = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof **data);
    if (!*data) return tern_fail_memory(err, n * sizeof **data);
    return t->backend->read(s->array, 0, n, *data, err);
}

// Checksums of all kept slots, in their order; the caller frees them.
static tern_status sum_slots(tern_trainer *t, uint32_t **sums, size_t *n, tern_error *err) {
    *n = 0;
    *sums = tern_alloc_array(TERN_MEM_MISC, t->n_slots, sizeof **sums);
    if (!*sums) return tern_fail_memory(err, t->n_slots * sizeof **sums);
    for (size_t i = 0; i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        float *data;
        if (!s->is_kept) continue;
        tern_status status = slot_data(t, s, &data, err);
        if (status == TERN_OK)
            (*sums)[(*n)++] = tern_crc32(0, data, (size_t)(s->n_rows * s->n_cols) * sizeof *data);
        tern_free(data);
        if (status != TERN_OK) return status;
    }
    return TERN_OK;
}

static tern_status write_slots(tern_trainer *t, tern_gguf_writer *w, bool own, tern_error *err) {
    for (size_t i = 0; i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        float *data;
        if (!s->is_kept || is_own(t, s) != own) continue;
        tern_status status = slot_data(t, s, &data, err);
        if (status == TERN_OK)
            status = tern_gguf_write(w, data, s->n_rows * s->n_cols * sizeof *data, err);
        tern_free(data);
        if (status != TERN_OK) return status;
    }
    return tern_gguf_writer_finish(w, err);
}

static tern_status declare_slots(tern_trainer *t, tern_gguf_writer *w, bool own) {
    for (size_t i = 0; i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        const uint64_t ne[] = {s->n_cols, s->n_rows};
        char name[80];
        if (!s->is_kept || is_own(t, s) != own) continue;
        file_name(s, name, sizeof name);
        TERN_TRY(tern_gguf_declare(w, name, TERN_DTYPE_F32, s->n_rows > 1 ? 2 : 1, ne));
    }
    return TERN_OK;
}

// The file of moments beside "NAME.gguf": "NAME.adam.gguf".
static void beside(const char *path, char *out, size_t size) {
    snprintf(out, size, "%.*s.adam.gguf", (int)(strlen(path) - strlen(".gguf")), path);
}

static void list(const tern_trainer *t, glob_t *found) {
    char pattern[4096];
    snprintf(pattern, sizeof pattern, "%s/step-????????.gguf", t->desc.out);
    *found = (glob_t){0};
    if (glob(pattern, 0, NULL, found) != 0) found->gl_pathc = 0;
}

// Who is stopped here leaves nothing for good: what is listed goes last.
static void remove_old(const tern_trainer *t) {
    glob_t found;
    list(t, &found);
    for (size_t i = 0; i + (size_t)t->desc.keep < found.gl_pathc; i++) {
        char moments[4300];
        beside(found.gl_pathv[i], moments, sizeof moments);
        if (t->base) unlink(moments);
        unlink(found.gl_pathv[i]);
    }
    globfree(&found);
}

// sums: NULL for the file beside.
static tern_status write_file(tern_trainer *t, const char *path, const uint32_t *sums,
                              size_t n_sums, tern_error *err) {
    tern_gguf_writer *w;
    TERN_TRY(tern_gguf_writer_open(&w, path, 0, err));
    tern_status status = sums ? put_meta(t, w, sums, n_sums, err) : TERN_OK;
    if (status == TERN_OK) status = declare_slots(t, w, sums != NULL);
    if (status == TERN_OK)
        status = write_slots(t, w, sums != NULL, err);
    else
        status = tern_fail(err, status, "%s: its header could not be made: %s", path,
                           tern_status_name(status));
    tern_gguf_writer_free(w);
    return status;
}

tern_status tern_checkpoint_write(tern_trainer *t, tern_error *err) {
    char path[4200], moments[4300];
    uint32_t *sums = NULL;
    size_t n_sums;
    snprintf(path, sizeof path, "%s/step-%08lld.gguf", t->desc.out, (long long)t->step);
    beside(path, moments, sizeof moments);
    tern_status status = sum_slots(t, &sums, &n_sums, err);
    if (status == TERN_OK && t->base) status = write_file(t, moments, NULL, 0, err);
    if (status == TERN_OK) status = write_file(t, path, sums, n_sums, err);
    if (status == TERN_OK) remove_old(t);
    tern_free(sums);
    return status;
}

// ---- Resuming ----------------------------------------------------------------------------------

static tern_status check_settings(const tern_trainer *t, const tern_file *file, tern_error *err) {
    setting settings[N_SETTINGS_MAX];
    int n = settings_of(t, settings);
    for (int i = 0; i < n; i++) {
        int64_t value = 0;
        tern_file_meta_int(file, settings[i].key, &value);
        if (value != settings[i].value)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "%s was made with another %s than this run's %lld", file->path,
                             settings[i].key + strlen("tern.train."), (long long)settings[i].value);
    }
    double alpha = 0;
    tern_file_meta_float(file, "adapter.lora.alpha", &alpha);
    if (!t->base || (float)alpha == t->desc.lora_alpha) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "%s was made with an alpha of %g, not %g", file->path,
                     alpha, (double)t->desc.lora_alpha);
}

// The tensor of a slot, its shape and checksum right.
static tern_status find_tensor(const tern_file *file, const tern_slot *s, const tern_meta *sums,
                               size_t index, const tern_tensor **out, tern_error *err) {
    char name[80];
    double sum;
    file_name(s, name, sizeof name);
    const tern_tensor *x = *out = tern_file_tensor(file, name);
    if (!x || x->type != TERN_DTYPE_F32 || x->ne[0] != s->n_cols || x->ne[1] != s->n_rows)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: %s is missing or has another shape",
                         file->path, name);
    if (!tern_meta_element(sums, index, &sum) ||
        tern_crc32(0, x->data, (size_t)x->bytes) != (uint32_t)sum)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: the checksum of %s is wrong", file->path, name);
    return TERN_OK;
}

// Everything is checked before anything is changed. moments: the file beside, of an adapter.
static tern_status load(tern_trainer *t, const tern_file *file, const tern_file *moments,
                        tern_error *err) {
    const tern_meta *sums = tern_file_meta(file, "tern.train.crc32");
    int64_t step, steps_in_loss;
    const tern_tensor *x;
    if (!sums || !tern_file_meta_int(file, "tern.train.step", &step) || step < 0 ||
        !tern_file_meta_int(file, "tern.train.steps_in_loss", &steps_in_loss))
        return tern_fail(err, TERN_ERR_FORMAT, "%s is a model, not a checkpoint", file->path);
    for (int pass = 0; pass < 2; pass++) {
        size_t index = 0;
        for (size_t i = 0; i < t->n_slots; i++) {
            const tern_slot *s = &t->slots[i];
            if (!s->is_kept) continue;
            TERN_TRY(find_tensor(is_own(t, s) ? file : moments, s, sums, index++, &x, err));
            if (pass == 1)
                TERN_TRY(t->backend->write(s->array, 0, s->n_rows * s->n_cols, x->data, err));
        }
    }
    t->step = step;
    t->steps_in_loss = (int32_t)steps_in_loss;
    t->scored_in_loss = steps_in_loss * t->desc.batch_tokens;
    tern_file_meta_int(file, "tern.train.scored_in_loss", &t->scored_in_loss);
    return TERN_OK;
}

static tern_status load_both(tern_trainer *t, const tern_file *file, tern_error *err) {
    char path[4300];
    tern_file *moments = NULL;
    beside(file->path, path, sizeof path);
    if (t->base) TERN_TRY(tern_file_open(&moments, path, err));
    tern_status status = load(t, file, moments, err);
    if (moments) tern_file_close(moments);
    return status;
}

tern_status tern_checkpoint_resume(tern_trainer *t, bool *found, tern_error *err) {
    glob_t paths;
    tern_status status = TERN_OK;
    *found = false;
    list(t, &paths);
    for (size_t i = paths.gl_pathc; i-- > 0 && !*found;) {
        tern_file *file;
        status = tern_file_open(&file, paths.gl_pathv[i], err);
        if (status == TERN_OK) {
            status = check_settings(t, file, err);
            bool other_run = status != TERN_OK;
            if (status == TERN_OK) status = load_both(t, file, err);
            tern_file_close(file);
            if (other_run) break;
        }
        *found = status == TERN_OK; // else an older one may do
    }
    bool none = paths.gl_pathc == 0;
    globfree(&paths);
    return *found || none ? TERN_OK : status;
}
