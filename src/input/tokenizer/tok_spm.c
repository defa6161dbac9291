// sentencepiece's .model: a protocol buffer.
//
//     ModelProto      1: piece, repeated   2: trainer   3: normalizer
//     piece           1: text   2: score (float)   3: type, GGUF's numbers
//     trainer         3: model type, 1 Unigram, 2 BPE   35: byte fallback   40 41 42 43: the ids of
//                     unk, bos, eos, pad
//     normalizer      2: precompiled_charsmap   3: a space in front of texts   4: spaces squeezed
//
// It does not say which ids go before and after a text: BPE models (Llama, Gemma) begin with bos,
// Unigram models (T5) end with eos, unless tokenizer_config.json says otherwise.
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "input/tokenizer/tok.h"

typedef struct field {
    uint32_t number;
    int wire;       // 0: value; 1, 5: fixed numbers; 2: bytes
    uint64_t value; // of the wires 0, 1 and 5
    tern_str bytes;
} field;

// Reads fields one after the other; false: at the end, or *broken.
typedef struct message {
    const uint8_t *at, *end;
    bool broken;
} message;

static message message_of(tern_str bytes) {
    const uint8_t *b = (const uint8_t *)bytes.ptr;
    return (message){b, b ? b + bytes.len : b, false};
}

static uint64_t read_varint(message *m) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        uint8_t b = *m->at++;
        value |= (uint64_t)(b & 0x7F) << shift;
        if (!(b & 0x80)) return value;
    }
    m->broken = true;
    return 0;
}

static bool next_field(message *m, field *f) {
    if (m->broken || m->at == m->end) return false;
    uint64_t key = read_varint(m);
    *f = (field){.number = (uint32_t)(key >> 3), .wire = (int)(key & 7)};
    size_t left = (size_t)(m->end - m->at), fixed = f->wire == 1 ? 8 : f->wire == 5 ? 4 : 0;
    if (f->wire == 0) {
        f->value = read_varint(m);
    } else if (fixed && fixed <= left) {
        for (size_t i = 0; i < fixed; i++) f->value |= (uint64_t)m->at[i] << 8 * i;
        m->at += fixed;
    } else if (f->wire == 2) {
        uint64_t n = read_varint(m);
        left = (size_t)(m->end - m->at);
        if (n > left) m->broken = true;
        if (m->broken) return false;
        f->bytes = (tern_str){(const char *)m->at, (size_t)n};
        m->at += n;
    } else {
        m->broken = true;
    }
    return !m->broken;
}

// ---- What all containers share ------------------------------------------------------------------

// Merges repeated spaces, then puts a space in front, then makes each space U+2581.
tern_status tern_tokenizer_add_spm_steps(tern_tokenizer *t, const tern_spm_desc *d,
                                         tern_error *err) {
    tern_normalizer *z = &t->normalizer;
    tern_norm_step *step = NULL;
    tern_str mark = TERN_STR(TERN_SPACE_MARK), none = {0};
    t->fuse_unk = t->space_marks = true;
    t->strip_space = d->space_prefix;
    TERN_TRY(tern_normalizer_add_charsmap(z, d->charsmap, err));
    if (d->squeeze) TERN_TRY(tern_normalizer_add(z, TERN_NORM_SQUEEZE, none, &step, err));
    if (d->space_prefix) TERN_TRY(tern_normalizer_add(z, TERN_NORM_PREPEND, mark, &step, err));
    TERN_TRY(tern_normalizer_add(z, TERN_NORM_REPLACE, mark, &step, err));
    return tern_pattern_open_literal(&step->pattern, TERN_STR(" "), err);
}

// Scores of BPE become orders: the highest float is the smallest integer.
tern_status tern_tokenizer_set_scores(tern_tokenizer *t, const tern_spm_desc *d,
                                      const float *scores, tern_error *err) {
    size_t n = (size_t)t->vocab.n;
    if (d->unigram) {
        t->unigram.scores = tern_alloc_array(TERN_MEM_TOKENIZER, n + 1, sizeof(double));
        if (!t->unigram.scores) return tern_fail_memory(err, n * sizeof(double));
        for (size_t i = 0; i < n; i++) t->unigram.scores[i] = (double)scores[i];
        return tern_unigram_init(t, err);
    }
    t->orders = tern_alloc_array(TERN_MEM_TOKENIZER, n + 1, sizeof *t->orders);
    if (!t->orders) return tern_fail_memory(err, n * sizeof *t->orders);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tern_f32_to_bits(scores[i]);
        t->orders[i] = bits & 0x80000000u ? bits : ~bits & 0x7FFFFFFFu;
    }
    return TERN_OK;
}

float tern_score_of_order(uint32_t order) {
    return tern_bits_to_f32(order & 0x80000000u ? order : ~order & 0x7FFFFFFFu);
}

// ---- The protocol buffer ------------------------------------------------------------------------

typedef struct model {
    tern_str *texts;
    uint8_t *types;
    float *scores;
    size_t n;
    int64_t kind, ids[4]; // unk, bos, eos, pad
    bool byte_fallback;
    tern_spm_desc desc;
} model;

static tern_status broken(tern_error *err) {
    return tern_fail(err, TERN_ERR_FORMAT,
                     "tokenizer.model is not one of sentencepiece (a protocol buffer)");
}

static tern_status read_piece(model *m, tern_str bytes, tern_error *err) {
    message piece = message_of(bytes);
    size_t i = m->n++;
    m->types[i] = TERN_TOKEN_NORMAL;
    for (field f; next_field(&piece, &f);) {
        if (f.number == 1 && f.wire == 2) m->texts[i] = f.bytes;
        if (f.number == 2 && f.wire == 5) m->scores[i] = tern_bits_to_f32((uint32_t)f.value);
        if (f.number == 3 && f.wire == 0 && f.value >= 1 && f.value <= TERN_TOKEN_BYTE)
            m->types[i] = (uint8_t)f.value;
    }
    if (piece.broken || m->scores[i] != m->scores[i]) return broken(err);
    if (m->texts[i].len == 0) m->types[i] = TERN_TOKEN_NONE;
    return TERN_OK;
}

static tern_status read_trainer(model *m, tern_str bytes, tern_error *err) {
    message trainer = message_of(bytes);
    for (field f; next_field(&trainer, &f);) {
        if (f.wire != 0) continue;
        if (f.number == 3) m->kind = (int64_t)f.value;
        if (f.number == 35) m->byte_fallback = f.value != 0;
        if (f.number >= 40 && f.number <= 43) m->ids[f.number - 40] = (int64_t)f.value;
    }
    return trainer.broken ? broken(err) : TERN_OK;
}

static tern_status read_normalizer(model *m, tern_str bytes, tern_error *err) {
    message normalizer = message_of(bytes);
    for (field f; next_field(&normalizer, &f);) {
        if (f.number == 2 && f.wire == 2) m->desc.charsmap = f.bytes;
        if (f.number == 3 && f.wire == 0) m->desc.space_prefix = f.value != 0;
        if (f.number == 4 && f.wire == 0) m->desc.squeeze = f.value != 0;
    }
    return normalizer.broken ? broken(err) : TERN_OK;
}

static tern_status count_pieces(tern_str bytes, size_t *n, tern_error *err) {
    message all = message_of(bytes);
    *n = 0;
    for (field f; next_field(&all, &f);) *n += f.number == 1 && f.wire == 2;
    if (all.broken || *n == 0) return broken(err);
    if (*n <= TERN_VOCAB_MAX) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "tokenizer.model has %zu pieces; at most %d are believed", *n, TERN_VOCAB_MAX);
}

static tern_status read_model(model *m, tern_str bytes, tern_error *err) {
    message all = message_of(bytes);
    size_t n;
    TERN_TRY(count_pieces(bytes, &n, err));
    m->texts = tern_alloc_array(TERN_MEM_MISC, n, sizeof *m->texts);
    m->types = tern_alloc_array(TERN_MEM_MISC, n, sizeof *m->types);
    m->scores = tern_alloc_array(TERN_MEM_MISC, n, sizeof *m->scores);
    if (!m->texts || !m->types || !m->scores) return tern_fail_memory(err, n * sizeof *m->texts);
    for (field f; next_field(&all, &f);) {
        if (f.wire != 2) continue;
        if (f.number == 1) TERN_TRY(read_piece(m, f.bytes, err));
        if (f.number == 2) TERN_TRY(read_trainer(m, f.bytes, err));
        if (f.number == 3) TERN_TRY(read_normalizer(m, f.bytes, err));
    }
    m->desc.unigram = m->kind == 1;
    if (m->kind == 1 || m->kind == 2) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "tokenizer.model splits into %s: only Unigram and BPE are supported",
                     m->kind == 3 ? "words" : "characters");
}

static int32_t id_of(const tern_tokenizer *t, int64_t id) {
    return id >= 0 && id < t->vocab.n ? (int32_t)id : -1;
}

// tokenizer_config.json decides; without it, the default for models of this kind.
static void set_frame(tern_tokenizer *t, const tern_file *file, bool unigram) {
    const tern_json_doc *c = &file->tokenizer_config;
    bool bos = tern_json_bool(tern_json_path(c, "add_bos_token"), !unigram);
    bool eos = tern_json_bool(tern_json_path(c, "add_eos_token"), unigram);
    if (bos && t->bos >= 0) t->prefix[t->n_prefix++] = t->bos;
    if (eos && t->eos >= 0) t->suffix[t->n_suffix++] = t->eos;
    tern_tokenizer_add_end(t, t->eos);
    tern_tokenizer_add_known_ends(t);
}

static tern_status set_all(tern_tokenizer *t, const tern_file *file, const model *m,
                           tern_error *err) {
    TERN_TRY(tern_vocab_init(&t->vocab, m->texts, m->types, (int32_t)m->n, err));
    t->unk = id_of(t, m->ids[0]);
    t->bos = id_of(t, m->ids[1]);
    t->eos = id_of(t, m->ids[2]);
    t->pad = id_of(t, m->ids[3]);
    t->byte_fallback = m->byte_fallback;
    TERN_TRY(tern_tokenizer_add_spm_steps(t, &m->desc, err));
    TERN_TRY(tern_tokenizer_set_scores(t, &m->desc, m->scores, err));
    tern_tokenizer_index_bytes(t);
    TERN_TRY(tern_tokenizer_add_specials(t, err));
    set_frame(t, file, m->desc.unigram);
    return TERN_OK;
}

tern_status tern_tokenizer_load_spm(tern_tokenizer *t, const tern_file *file, tern_error *err) {
    model m = {.kind = 1, .ids = {0, 1, 2, -1}, .desc = {.space_prefix = true, .squeeze = true}};
    tern_status status = read_model(&m, file->tokenizer_model, err);
    if (status == TERN_OK) status = set_all(t, file, &m, err);
    tern_free(m.texts);
    tern_free(m.types);
    tern_free(m.scores);
    return status;
}
