// The WebAssembly module: functions for a page (packages/tern/src/engine/module.ts calls them).
//
// Functions of the module take numbers, and text as a pointer and its length; other arguments are
// JSON. They return 0 or an id, and a negative tern_status on failure; web_error has the message.
// Functions with a result leave it as JSON in web_result, until the next call. Ids are never
// reused. Everything here runs in one thread; only kernels run in others.
#ifndef TERN_APPS_WEB_H
#define TERN_APPS_WEB_H

#include "base/strbuf.h"
#include "tern.h"

#if defined(__wasm__)
#define WEB_EXPORT(name)         __attribute__((export_name(#name)))
#define WEB_IMPORT(module, name) __attribute__((import_module(#module), import_name(#name)))
#else // tests
#define WEB_EXPORT(name)
#define WEB_IMPORT(module, name)
#endif

// ---- Results --------------------------------------------------------------------------------

// Keeps the message for web_error; returns the negative status.
int32_t web_fail(const tern_error *err);
// The buffer of web_result, emptied for a new result.
tern_strbuf *web_result_begin(void);
// Returns 0, or out of memory.
int32_t web_result_end(void);
bool web_append(void *buffer, const char *text, size_t n_bytes); // a tern_text_fn: to a tern_strbuf

// ---- Models and sessions --------------------------------------------------------------------

typedef struct web_grammar web_grammar;
typedef struct web_embedding web_embedding;

typedef struct web_model {
    int32_t id;
    tern_model *model;
    tern_group *group; // for its sessions' generation; NULL: nothing was generated yet
    bool stepping;     // a step has begun and is not done
    struct web_session *sessions;
    web_grammar *grammars;
    web_embedding *embeddings; // in progress or done
    struct web_image *images;
    struct web_model *next;
} web_model;

typedef struct web_session {
    int32_t id;
    tern_session *session;
    web_model *model;
    bool logprobs;       // for the current generation
    size_t n_logprobs;   // tokens whose probabilities were passed on
    size_t n_dropped;    // messages that did not fit
    tern_answer *answer; // parses the current answer; NULL: not parsed
    struct web_session *next;
} web_session;

// NULL with *err: no such id.
web_model *web_model_find(int32_t id, tern_error *err);
web_session *web_session_find(int32_t id, tern_error *err);
web_model *web_model_first(void);            // the list's first; NULL: none is open
void web_sessions_close(web_model *m);       // closes the group, too
web_model *web_model_add(tern_model *model); // NULL: out of memory
tern_grammar *web_grammar_find(web_model *m, int32_t id, tern_error *err); // NULL: no such id
void web_grammars_close(web_model *m);
void web_embeddings_close(web_model *m);
void web_images_close(web_model *m);
void web_transcribers_close(const web_model *m);
void web_speeches_close(const web_model *m); // of the model, or of the codec

// ---- WebGPU -----------------------------------------------------------------------------------

// WebGPU's functions by their C names, over JavaScript's: the `symbol` of a tern_webgpu_desc.
void *web_gpu_symbol(void *user, const char *name);
// Called at the beginning of each exported function that may use the GPU. may_wait: the page calls
// it so that it can be suspended, if the browser supports that; other calls never wait.
void web_gpu_enter(bool may_wait);

#endif
