#include "apps/serve/answer_forms.h"

#include <string.h>
#include "base/alloc.h"

// One block: the job, ids, biases, the list of stop strings, and their texts.
job *job_new(const int32_t *ids, size_t n_ids, const tern_generate_params *params) {
    size_t text_bytes = 0;
    for (size_t i = 0; i < params->n_stops; i++) text_bytes += strlen(params->stops[i]) + 1;
    size_t stops_bytes = params->n_stops * sizeof *params->stops;
    size_t biases_bytes = params->n_biases * sizeof *params->biases;
    size_t ids_bytes = n_ids * sizeof *ids;
    job *j = tern_alloc(TERN_MEM_SESSION,
                        sizeof *j + stops_bytes + biases_bytes + ids_bytes + text_bytes);
    if (!j) return NULL;
    const char **stops = (const char **)(j + 1);
    tern_logit_bias *biases = (tern_logit_bias *)((char *)stops + stops_bytes);
    int32_t *own = (int32_t *)((char *)biases + biases_bytes);
    char *text = (char *)own + ids_bytes;
    for (size_t i = 0; i < params->n_stops; i++) {
        size_t n = strlen(params->stops[i]) + 1;
        stops[i] = memcpy(text, params->stops[i], n);
        text += n;
    }
    if (biases_bytes) memcpy(biases, params->biases, biases_bytes);
    if (ids_bytes) memcpy(own, ids, ids_bytes);
    j->ids = own;
    j->n_ids = n_ids;
    j->sampling = params->sampling ? *params->sampling : tern_sampling_default();
    j->params = *params;
    j->params.sampling = &j->sampling;
    j->params.stops = stops;
    j->params.biases = biases;
    j->end.job = j;
    j->end.kind = JOB_END;
    return j;
}

void job_free(job *j) {
    if (j) shared_grammar_release(j->grammar);
    tern_free(j);
}
