// A file's sampling settings: "general.sampling.*" in GGUF, generation_config.json in a folder.
#include <stdio.h>
#include "models/models.h"

typedef struct field {
    const char *gguf, *hf;
    bool is_int;
} field;

static const field fields[TERN_SAMPLING_FIELDS] = {
    [TERN_SAMPLING_TEMPERATURE] = {"temp", "temperature", false},
    [TERN_SAMPLING_TOP_K] = {"top_k", "top_k", true},
    [TERN_SAMPLING_TOP_P] = {"top_p", "top_p", false},
    [TERN_SAMPLING_MIN_P] = {"min_p", "min_p", false},
    [TERN_SAMPLING_REPEAT_PENALTY] = {"penalty_repeat", "repetition_penalty", false},
};

float tern_sampling_read(const tern_file *file, tern_sampling_field which) {
    const field *f = &fields[which];
    char key[64];
    double value = -1;
    snprintf(key, sizeof key, "general.sampling.%s", f->gguf);
    if (file->kind == TERN_FILE_GGUF)
        tern_file_meta_float(file, key, &value);
    else
        value = tern_json_number(tern_json_path(&file->generation_config, f->hf), -1);
    return value >= 0 && value < 0x1p31 ? (float)value : -1;
}

tern_status tern_sampling_write_gguf(tern_gguf_writer *w, const tern_file *from) {
    for (int i = 0; i < TERN_SAMPLING_FIELDS; i++) {
        float value = tern_sampling_read(from, (tern_sampling_field)i);
        char key[64];
        snprintf(key, sizeof key, "general.sampling.%s", fields[i].gguf);
        if (value < 0) continue;
        if (fields[i].is_int)
            TERN_TRY(tern_gguf_put_int(w, key, TERN_META_I32, (int64_t)value));
        else
            TERN_TRY(tern_gguf_put_f32(w, key, value));
    }
    return TERN_OK;
}

void tern_sampling_write_json(const tern_file *from, const int32_t *ends, size_t n_ends,
                              tern_strbuf *out) {
    float temperature = tern_sampling_read(from, TERN_SAMPLING_TEMPERATURE);
    bool says = n_ends > 1;
    for (int i = 0; i < TERN_SAMPLING_FIELDS; i++)
        says |= tern_sampling_read(from, (tern_sampling_field)i) >= 0;
    if (!says) return;
    tern_strbuf_puts(out, "{\n  \"eos_token_id\": [");
    for (size_t i = 0; i < n_ends; i++) tern_strbuf_printf(out, "%s%d", i ? ", " : "", ends[i]);
    tern_strbuf_putc(out, ']');
    if (temperature >= 0)
        tern_strbuf_printf(out, ",\n  \"do_sample\": %s", temperature > 0 ? "true" : "false");
    for (int i = 0; i < TERN_SAMPLING_FIELDS; i++) {
        float value = tern_sampling_read(from, (tern_sampling_field)i);
        if (value < 0) continue;
        tern_strbuf_printf(out, ",\n  \"%s\": ", fields[i].hf);
        tern_strbuf_json_float(out, value);
    }
    tern_strbuf_puts(out, "\n}\n");
}
