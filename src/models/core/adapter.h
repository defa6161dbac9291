// Reading adapters: what adapter.c and dora.c share.
#ifndef TERN_MODELS_ADAPTER_H
#define TERN_MODELS_ADAPTER_H

#include "models/models.h"

typedef struct tern_adapter_reader {
    tern_adapters *set;
    const tern_file *file, *base;
    const tern_arch *arch;
    const tern_config *config;
    float scale;
    double alpha;
    bool by_root;   // use_rslora
    bool of_folder; // trained on a folder's weights
    bool is_dora;   // use_dora: matrices have magnitudes
} tern_adapter_reader;

// A matrix's tensors in the file.
typedef struct tern_adapter_parts {
    const tern_tensor *a, *b, *magnitudes; // magnitudes: NULL without DoRA
    double alpha;
} tern_adapter_parts;

// Whether text ends with `end`; `front` gets the part before it.
bool tern_adapter_cut_end(const char *text, const char *end, char *front, size_t size);
// NaN or infinity would spread to every product with the matrix, and to every file that the adapter
// is merged into.
tern_status tern_adapter_refuse_damaged(const tern_tensor *t, bool is_whole, tern_error *err);
// Adds row `row` of B A.
void tern_adapter_add_row(const tern_adapter *p, int64_t row, float *sum);

#ifndef TERN_NO_DORA
// dora.c. Finds the magnitudes of a matrix, which a GGUF names, or of a PEFT folder's module; of
// what a tensor of that name has them, into front.
void tern_dora_find(const tern_adapter_reader *r, const char *name, tern_adapter_parts *of);
bool tern_dora_cut(const tern_adapter_reader *r, const char *tensor, char *front, size_t size);
// before: the matrix's adapter in files that were read earlier, or NULL.
tern_status tern_dora_check(const tern_adapter_reader *r, const tern_adapter_parts *of,
                            const tern_adapter *before, const char *weight, tern_error *err);
// Reads the magnitudes, one for each row of B.
tern_status tern_dora_read(const tern_adapter_reader *r, const tern_adapter_parts *of,
                           tern_adapter *p, tern_error *err);
// Multiplies a row of W + B A by its factor.
void tern_dora_scale(const tern_adapter *p, int64_t row, float *sum);
#else // pages, where use_dora is refused like all that is not known
#define tern_dora_find(r, name, of)                 (void)0
#define tern_dora_cut(r, tensor, front, size)       false
#define tern_dora_check(r, of, before, weight, err) TERN_OK
#define tern_dora_read(r, of, p, err)               TERN_OK
#define tern_dora_scale(p, row, sum)                (void)0
#endif

#endif
