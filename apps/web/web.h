// The WebAssembly module: what a page calls (packages/tern/src/engine/module.ts is the other end).
//
// Functions of the module take numbers, and text as a pointer with its bytes; arguments that are
// more than that are JSON. They return 0 or an id, and a negative tern_status on failure, whose
// sentence web_error has. Functions with a result leave it as JSON in web_result, until the next
// call. Ids are never used twice. Everything here runs in one thread; only kernels run in others.
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

// Remembers the sentence for web_error; the status, negative.
int32_t web_fail(const tern_error *err);
// What the function leaves in web_result: empty, to be written to.
tern_strbuf *web_result_begin(void);
// 0, or out of memory.
int32_t web_result_end(void);
bool web_append(void *buffer, const char *text, size_t n_bytes); // a tern_text_fn: to a tern_strbuf

// ---- Models and sessions --------------------------------------------------------------------

typedef struct web_grammar web_grammar;
typedef struct web_embedding web_embedding;

typedef struct web_model {
    int32_t id;
    tern_model *model;
    tern_group *group; // of what its sessions generate; NULL: nothing did so far
    bool stepping;     // a step was begun and is not done
    struct web_session *sessions;
    web_grammar *grammars;
    web_embedding *embeddings;                 // that were begun
    struct web_image *images;                  // of a module with senses
    void (*close_senses)(struct web_model *m); // NULL: it has none open
    struct web_model *next;
} web_model;

typedef struct web_session {
    int32_t id;
    tern_session *session;
    web_model *model;
    bool logprobs;       // of what it generates now
    size_t n_logprobs;   // tokens whose probabilities were passed on
    size_t n_dropped;    // messages that did not fit
    tern_answer *answer; // takes apart what it generates now; NULL: nothing does
    struct web_session *next;
} web_session;

// NULL, and *err says so: there is none of that id.
web_model *web_model_find(int32_t id, tern_error *err);
web_session *web_session_find(int32_t id, tern_error *err);
web_model *web_model_first(void);            // of a list; NULL: none is open
void web_sessions_close(web_model *m);       // and the group
web_model *web_model_add(tern_model *model); // NULL: out of memory
tern_grammar *web_grammar_find(web_model *m, int32_t id, tern_error *err); // NULL: there is none
void web_grammars_close(web_model *m);
void web_embeddings_close(web_model *m);

// ---- WebGPU -----------------------------------------------------------------------------------

// The functions of WebGPU by their names in C, over JavaScript's: a tern_webgpu_desc's symbol.
void *web_gpu_symbol(void *user, const char *name);
// At the beginning of each call from outside that may use the GPU. may_wait: the page calls it in a
// way that can be suspended, if the browser has that; the others never wait.
void web_gpu_enter(bool may_wait);

#endif
