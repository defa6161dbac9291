// Models by their names: those in the models folder, and those of a hub with Hugging Face's API.
//
// The folder is its own index: there is no list beside its files.
//
//     FOLDER/stories.gguf                        "stories"
//     FOLDER/folder                              "folder": config.json and *.safetensors
//     FOLDER/OWNER/NAME/file-Q4_K_M.gguf         "OWNER/NAME:Q4_K_M", as `tern pull` puts it there
//     FOLDER/OWNER/NAME/mmproj-F16.gguf          the vision tower of models in this folder
//     FOLDER/OWNER/NAME                          "OWNER/NAME": config.json and *.safetensors
//     FOLDER/OWNER/NAME@REVISION/...             of another revision than "main"
//     FOLDER/OWNER/NAME/.tern-pull               the files so far of an unfinished pull
//
// A pull renames a model's first file (the first part of a split set, config.json) last, so that
// listed models are whole.
#ifndef TERN_HUB_H
#define TERN_HUB_H

#include "tern.h"

// ---- What is there -----------------------------------------------------------------------------

typedef struct hub_model {
    char *name;       // as above
    char *path;       // the path for tern_model_open
    uint64_t bytes;   // of its files
    int64_t modified; // seconds since 1970
    size_t n_files;
    bool is_folder;
} hub_model;

typedef struct hub_list { // zero-initialise; sorted by name
    hub_model *models;    // [n]
    size_t n, capacity;
} hub_list;

// Lists the models in a folder. A missing folder has no models.
tern_status hub_list_folder(hub_list *out, const char *folder, tern_error *err);
void hub_list_free(hub_list *list);
// Where `make install` puts the repository's models: share/tern/models beside the program's folder,
// wherever that is. NULL: it does not exist. free() it.
char *hub_installed_folder(void);
// Adds the installed models whose names are not in the list.
tern_status hub_list_installed(hub_list *list, tern_error *err);

// How well a name fits a model, 0: not at all. Besides the model's own name, ignoring case: with
// ":latest"; a short name; with "hf:", "hf://", "hf.co/" or the address of a page in front; the
// file's, with ".gguf" or without; without the owner; without the quantization; without "-GGUF" at
// the end. The best fit of a list counts; two equally good ones are ambiguous.
int hub_name_fits(const hub_model *m, const char *name, size_t n);
// The model that a name means. NULL: none, or an ambiguous name: then *other is a second model that
// fits.
const hub_model *hub_find(const hub_list *list, const char *name, const hub_model **other);
// The path for tern_model_open, for a name: an existing path itself, else a model of the folder,
// else one installed with the program. The caller frees it with free().
tern_status hub_resolve(char **path, const char *folder, const char *name, tern_error *err);

// Removes a model's files, with the last model of a folder also the vision tower, and its folders
// if nothing else is in them. `name` as in hub_resolve, but never a path. *bytes: bytes freed.
tern_status hub_remove(const char *folder, const char *name, uint64_t *bytes, tern_error *err);

// ---- What a model is ---------------------------------------------------------------------------

// Facts read from a model's files without opening it.
typedef struct hub_facts {
    char kind[16];                    // "language", "embedding", "reranker"; "": unknown
    char architecture[64], label[96]; // label: the model's name in its file, or ""
    char types[32];                   // of most of its weights: "Q4_K"
    char refusal[200];                // why it cannot be opened; "": it can
    bool is_gguf;
    bool sees;        // a language model that accepts images
    bool transcribes; // recognizes speech
    int64_t n_weights, n_context, n_embd, n_layers, n_vocab, file_bytes;
} hub_facts;
tern_status hub_read_facts(hub_facts *out, const char *path, tern_error *err);

// ---- Getting one -------------------------------------------------------------------------------

typedef struct hub_pull_progress {
    const char *file;
    const char *digest;             // of the file, in hexadecimal; "": not known
    uint64_t file_done, file_bytes; // of this file; file_bytes 0: not known
    size_t i_file, n_files;         // i_file from 0
    uint64_t done, all;             // bytes of all files
    bool is_checking;               // reading and checking files already here
} hub_pull_progress;

// Names that stand for a repository and a type: hub_names.inc.
typedef struct hub_short {
    const char *name, *source; // "qwen3:0.6b"; "OWNER/NAME:TYPE"
    unsigned megabytes;        // approximately
    const char *licence, *what;
} hub_short;
const hub_short *hub_shorts(size_t *n);
// Ignores case; a family's name without a size gives its first. NULL: not a short name.
const hub_short *hub_find_short(const char *name, size_t n);

typedef struct hub_pull_desc {
    const char *folder; // of models; created if missing
    const char *name; // a short name, or "hf:OWNER/NAME[/FILE or FOLDER][:QUANTIZATION][@REVISION]"
    const char *endpoint; // "https://huggingface.co"; NULL: this one
    const char *token;    // sent to the endpoint only; NULL: none
    const char *revision; // a branch, tag or commit; NULL: the name's, else "main"
    bool text_only;       // leaves out a GGUF's vision tower (mmproj*.gguf)
    int n_retries;        // for a file, with growing delays, while no bytes arrive
    // Returns false to cancel. Called at least once a second.
    bool (*on_progress)(void *user, const hub_pull_progress *p);
    void *user;
} hub_pull_desc;
// Downloads a model's files into the folder. Files that are already there, and equal the hub's,
// stay; files begun by an earlier pull are continued. *name: the model's name from then on; free()
// it. *n_new: files downloaded.
tern_status hub_pull(const hub_pull_desc *desc, char **name, size_t *n_new, tern_error *err);

// What a pull would download, according to the hub. Nothing is written.
typedef struct hub_offer {
    char source[300]; // "OWNER/NAME"
    char licence[64]; // "": the hub names none
    char shown[200];  // the name of the model's file, for people
    uint64_t bytes;   // of all files whose size the hub names
    size_t n_files;
} hub_offer;
tern_status hub_look(const hub_pull_desc *desc, hub_offer *out, tern_error *err);

// ---- Uploads (hub_blob.c) ----------------------------------------------------------------------

// Files that models are made of, by their SHA-256: FOLDER/.blobs/sha256-DIGEST. They are there once
// they are whole, and for a day at least if no model is made of them.
typedef struct hub_blob hub_blob; // being received
typedef struct hub_blob_desc {
    const char *folder, *digest; // of models; 64 digits
    uint64_t n_bytes;            // of the file; 0: not known
    uint64_t bytes_max;          // that the folder may have; 0: what the disk has room for
} hub_blob_desc;
bool hub_digest_is_valid(const char *hex, size_t n);
bool hub_blob_exists(const char *folder, const char *digest);
tern_status hub_blob_open(hub_blob **out, const hub_blob_desc *desc, tern_error *err);
tern_status hub_blob_write(hub_blob *b, const void *bytes, size_t n, tern_error *err);
tern_status hub_blob_end(hub_blob *b, tern_error *err); // checks the digest, and keeps the file
void hub_blob_drop(hub_blob *b); // frees it, and removes what was not kept; NULL is allowed

typedef struct hub_blob_file {
    const char *name, *digest; // in the model's folder
} hub_blob_file;
typedef struct hub_install {
    const char *name; // of the model: its path in the folder, without ".gguf"
    const hub_blob_file *files;
    size_t n_files;
} hub_install;
// Makes a model of blobs, which are moved: one GGUF file, or a folder's config.json, safetensors
// and tokenizer. If it could not be opened, nothing changes.
tern_status hub_install_blobs(const char *folder, const hub_install *m, tern_error *err);

// The models that a running `tern serve`, or another server with Ollama's API, has in memory.
typedef struct hub_running {
    char *name, *until; // until: when it is unloaded if not used; "": never
    uint64_t bytes, device_bytes;
    int64_t n_context;
} hub_running;
// server: "http://127.0.0.1:8080". *list [*n]: free it with hub_running_free.
tern_status hub_ask_running(hub_running **list, size_t *n, const char *server, const char *key,
                            tern_error *err);
void hub_running_free(hub_running *list, size_t n);
// Whether this program can download: it was built with libcurl.
bool hub_can_fetch(void);

#endif
