// What tern_inspect finds in a file, before it is printed as text or as JSON.
#ifndef TERN_TASKS_INSPECT_INSPECT_H
#define TERN_TASKS_INSPECT_INSPECT_H

#include "formats/formats.h"
#include "models/models.h"

typedef struct tern_tally { // of tensors
    uint64_t n_tensors, n_weights, bytes;
} tern_tally;

typedef struct tern_code_counts {
    uint64_t n[4]; // codes -1, 0, +1, and the fourth pattern of two bits, which means nothing
} tern_code_counts;

typedef struct tern_inspection {
    const tern_file *file;
    tern_str architecture;
    const tern_arch *arch; // NULL: not a model that can run
    tern_config config;    // of arch
    tern_error refusal;    // why it cannot run; empty message: it can
    size_t n_files;
    tern_tally left_out; // of other parts of the model, which are not run
    tern_state_bytes states;
    tern_tally all, ternary, of_type[TERN_DTYPE_COUNT];
    bool is_tied;             // the embedding table is also the output head
    uint64_t bytes_per_token; // weights that a decode step reads
    tern_code_counts codes;   // of all ternary tensors, including those that loading makes ternary
    tern_tally coded;         // these tensors
    size_t n_masters;         // of them: float master weights
    tern_code_counts *codes_of; // [n_tensors], NULL without a histogram
} tern_inspection;

tern_status tern_inspection_make(tern_inspection *in, const tern_file *file, bool histogram,
                                 tern_error *err);
void tern_inspection_free(tern_inspection *in);

void tern_inspection_text(const tern_inspection *in, bool tensors, tern_strbuf *out);
void tern_inspection_json(const tern_inspection *in, bool tensors, tern_strbuf *out);

double tern_bits_per_weight(const tern_tally *tally);
// Entropy of these weights in bits, -sum p log2 p: at most log2 3 = 1.585.
double tern_codes_entropy(const uint64_t codes[3]);
// A value of config.json, or of GGUF metadata, as JSON. Arrays of more than n_max elements are cut:
// the first ones, then a string with the total.
void tern_put_json(const tern_json_doc *doc, const tern_json *value, uint32_t n_max,
                   tern_strbuf *out);
void tern_put_meta(const tern_meta *meta, uint64_t n_max, tern_strbuf *out);

#endif
