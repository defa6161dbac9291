// Presets: names that clients gave to a model together with a system message, messages and
// sampling parameters (Ollama's /api/create and /api/copy). Each is a file of JSON in the models
// folder: FOLDER/.presets/NAME.json. The loop's thread has the list; any thread writes files.
#ifndef TERN_SERVE_MODEL_PRESETS_H
#define TERN_SERVE_MODEL_PRESETS_H

#include <stdint.h>
#include "base/os/os_file.h"
#include "base/strbuf.h"
#include "tern.h"

#define PRESET_BYTES 262144 // of a file
#define PRESETS_MAX  1024   // of a folder

// {"name", "from", "system", "messages", "parameters", "license"}: only the first two are
// required.
typedef struct preset {
    char *name, *from;
    char *json;
    size_t n_json;
    char *file;       // its name in the folder
    tern_stamp stamp; // of the file as it was read
    size_t n_users;   // that hold it
    bool is_gone;     // freed when nobody holds it any more
} preset;

typedef struct presets { // zero-initialise
    preset **list;       // [n] by name
    size_t n, capacity;
} presets;

// Reads the folder's files that are new or have changed. Damaged ones are left out.
void presets_refresh(presets *p, const char *folder);
void presets_free(presets *p);
// With or without ":latest", ignoring case. NULL: none.
preset *presets_find(const presets *p, tern_str name);
preset *preset_hold(preset *p); // NULL is allowed
void preset_release(preset *p); // NULL is allowed

// The name without the tag that Ollama gives to names without one.
tern_str name_without_latest(tern_str name);
// Whether it may be a preset's name: words of letters, digits, "-", "_" and ".", with "/" and one
// ":" between them, at most 120 bytes.
bool preset_name_is_valid(tern_str name);
tern_status preset_write(const char *folder, tern_str name, const tern_strbuf *json,
                         tern_error *err);
tern_status preset_remove(const char *folder, tern_str name, tern_error *err);

#endif
