// An adapter as PEFT has it: adapter_config.json and adapter_model.safetensors, with the modules'
// names and the order of rows and columns that the model's folder has.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "train/trainer.h"

enum { NAME_BYTES = 192 };

// "blk.0.attn_q.weight.lora_a" is base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight,
// and ".lora_m" is .lora_magnitude_vector.
static bool peft_name(const tern_trainer *t, const tern_slot *s, char out[NAME_BYTES],
                      char weight[NAME_BYTES]) {
    char hf[NAME_BYTES / 2];
    const char *end = tern_name_ends(s->name, ".lora_a")   ? "lora_A.weight"
                      : tern_name_ends(s->name, ".lora_b") ? "lora_B.weight"
                                                           : "lora_magnitude_vector";
    snprintf(weight, NAME_BYTES, "%.*s", (int)(strlen(s->name) - strlen(".lora_a")), s->name);
    if (!tern_arch_name_to_hf(t->arch, weight, hf, sizeof hf) || !tern_name_ends(hf, ".weight"))
        return false;
    snprintf(out, NAME_BYTES, "base_model.model.%.*s.%s", (int)(strlen(hf) - strlen(".weight")), hf,
             end);
    return true;
}

tern_status tern_peft_can_write(const tern_trainer *t, tern_error *err) {
    char name[NAME_BYTES], weight[NAME_BYTES];
    if (!t->base)
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: peft is a form of adapters (lora_rank)");
    if (t->arch->folded && tern_lora_file(t->base)->kind == TERN_FILE_GGUF)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "train: a %s's GGUF has factors in its weights that its folder has beside "
                         "them: an adapter for PEFT needs the folder as init",
                         t->arch->name);
    for (size_t i = 0; i < t->n_slots; i++)
        if (t->slots[i].is_weight && t->slots[i].is_kept &&
            !peft_name(t, &t->slots[i], name, weight))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "train: %s has no name in a folder, so PEFT cannot have it",
                             t->slots[i].name);
    return TERN_OK;
}

static bool is_vector(const tern_slot *s) { return tern_name_ends(s->name, ".lora_m"); }

// Rows of B, magnitudes and columns of A lie as the folder's weight has them.
static tern_status write_slot(tern_trainer *t, const tern_slot *s, tern_st_writer *w,
                              tern_error *err) {
    char name[NAME_BYTES], weight[NAME_BYTES];
    uint64_t rows = is_vector(s) ? s->n_cols : s->n_rows, cols = is_vector(s) ? 1 : s->n_cols;
    peft_name(t, s, name, weight);
    bool is_a = tern_name_ends(s->name, ".lora_a");
    tern_moves moves = tern_arch_moves(t->arch, &t->config, weight);
    float *data = tern_alloc_array(TERN_MEM_WEIGHTS, (rows + 2) * cols, sizeof *data);
    if (!data) return tern_fail_memory(err, rows * cols * sizeof *data);
    float *row = data + rows * cols, *scratch = row + cols;
    tern_status status = t->backend->read(s->array, 0, rows * cols, data, err);
    for (uint64_t i = 0; status == TERN_OK && i < rows; i++) {
        uint64_t from = is_a ? i : (uint64_t)tern_order_source(&moves.rows, (int64_t)i, false);
        memcpy(row, data + from * cols, cols * sizeof *row);
        if (is_a) tern_order_columns(&moves.columns, false, row, (int64_t)cols, scratch);
        status = tern_st_write(w, row, cols * sizeof *row, err);
    }
    tern_free(data);
    return status;
}

static void put_modules(const tern_trainer *t, tern_strbuf *out) {
    char name[NAME_BYTES], weight[NAME_BYTES];
    size_t begin = out->len;
    for (size_t i = 0; i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        if (!s->is_weight || !s->is_kept || !tern_name_ends(s->name, ".lora_a")) continue;
        peft_name(t, s, name, weight);
        *strstr(name, ".lora_A.weight") = 0;
        tern_strbuf item = {0};
        tern_strbuf_json(&item, strrchr(name, '.') + 1, strlen(strrchr(name, '.') + 1));
        out->failed |= item.failed;
        bool is_new = !out->failed && !strstr(tern_strbuf_text(out) + begin, item.ptr);
        if (is_new) tern_strbuf_printf(out, "%s%s", out->len > begin ? ", " : "", item.ptr);
        tern_strbuf_free(&item);
    }
}

static tern_status put_config(const tern_trainer *t, tern_st_writer *w, tern_error *err) {
    const tern_train_desc *d = &t->desc;
    tern_strbuf text = {0};
    tern_strbuf_puts(&text, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  "
                            "\"base_model_name_or_path\": ");
    tern_strbuf_json(&text, d->init, strlen(d->init));
    tern_strbuf_printf(&text,
                       ",\n  \"r\": %d,\n  \"lora_alpha\": %.9g,\n  \"use_rslora\": %s,\n"
                       "  \"use_dora\": %s,\n"
                       "  \"lora_dropout\": 0.0,\n  \"bias\": \"none\",\n"
                       "  \"fan_in_fan_out\": false,\n  \"inference_mode\": true,\n"
                       "  \"target_modules\": [",
                       d->lora_rank, (double)d->lora_alpha, d->rslora ? "true" : "false",
                       d->dora ? "true" : "false");
    put_modules(t, &text);
    tern_strbuf_puts(&text, "]\n}\n");
    tern_status status = text.failed
                             ? tern_fail_memory(err, text.len)
                             : tern_st_put_file(w, "adapter_config.json", text.ptr, text.len, err);
    tern_strbuf_free(&text);
    return status;
}

static tern_status write_all(tern_trainer *t, tern_st_writer *w, tern_error *err) {
    char name[NAME_BYTES], weight[NAME_BYTES];
    tern_st_writer_name(w, "adapter_model.safetensors");
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < t->n_slots; i++) {
            const tern_slot *s = &t->slots[i];
            if (!s->is_weight || !s->is_kept) continue;
            const uint64_t shape[] = {is_vector(s) ? s->n_cols : s->n_rows, s->n_cols};
            peft_name(t, s, name, weight);
            TERN_TRY(pass ? write_slot(t, s, w, err)
                          : tern_st_declare(w, name, TERN_DTYPE_F32, is_vector(s) ? 1 : 2, shape));
        }
    TERN_TRY(put_config(t, w, err));
    return tern_st_writer_finish(w, err);
}

tern_status tern_peft_write(tern_trainer *t, tern_error *err) {
    char *folder = tern_path_join(t->desc.out, "peft");
    tern_st_writer *w;
    if (!folder) return tern_fail_memory(err, strlen(t->desc.out));
    tern_status status = tern_st_writer_open(&w, folder, 0, err);
    if (status == TERN_OK) {
        status = write_all(t, w, err);
        tern_st_writer_free(w);
    }
    tern_free(folder);
    return status;
}
