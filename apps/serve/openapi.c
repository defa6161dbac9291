// GET /openapi.json. Paths and methods are those of the table of routes; what stands here is what
// people read about them. A test looks that no route lacks it.
#include "apps/serve/openapi.h"

#include <stdio.h>
#include <string.h>
#include "apps/serve/route.h"
#include "base/json/json_write.h"
#include "tern.h"

// fields: the most used ones of the body, as "NAME:TYPE", with "!" if it is required; after "["
// those of each item of a list.
typedef struct about {
    const char *path, *tag, *summary, *fields;
} about;

// clang-format off
#define CHAT \
    "messages:array! max_tokens:integer temperature:number tools:array stream:boolean"
// clang-format on
#define COMPLETION "prompt:any! n_predict:integer temperature:number stream:boolean"
#define RANK       "query:string! documents:array! top_n:integer"

static const about abouts[] = {
    {"/", "tern", "The page for browsers", NULL},
    {"/page/", "tern", "Files of the page", NULL},
    {"/health", "llama-server", "Whether the server takes requests", NULL},
    {"/v1/health", "llama-server", "Whether the server takes requests", NULL},
    {"/version", "vLLM", "The server's version", NULL},
    {"/openapi.json", "tern", "This document", NULL},
    {"/v1/models", "OpenAI", "The models", NULL},
    {"/v1/models/", "OpenAI", "One model", NULL},
    {"/models", "OpenAI", "The models", NULL},
    {"/models/load", "llama-server", "Open a model", "model:string!"},
    {"/models/unload", "llama-server", "Close a model", "model:string!"},
    {"/v1/chat/completions", "OpenAI", "Answer a conversation", CHAT},
    {"/chat/completions", "OpenAI", "Answer a conversation", CHAT},
    {"/v1/completions", "OpenAI", "Continue a text, or fill in before a suffix",
     "prompt:any! suffix:string max_tokens:integer temperature:number logprobs:integer "
     "echo:boolean stream:boolean"},
    {"/v1/fim/completions", "Mistral", "Fill in between a prompt and a suffix",
     "prompt:string! suffix:string max_tokens:integer temperature:number random_seed:integer "
     "stream:boolean"},
    {"/v1/responses", "OpenAI", "Answer a list of items",
     "input:any! instructions:string tools:array max_output_tokens:integer stream:boolean"},
    {"/v1/responses/input_tokens", "OpenAI", "Count the tokens of such a request",
     "input:any! instructions:string tools:array"},
    {"/v1/embeddings", "OpenAI", "Vectors of texts",
     "input:any! encoding_format:string dimensions:integer"},
    {"/v1/audio/transcriptions", "OpenAI", "What is said in a recording",
     "file:binary! response_format:string language:string stream:boolean"},
    {"/v1/audio/translations", "OpenAI", "What is said in a recording, in English",
     "file:binary! response_format:string"},
    {"/v1/audio/speech", "OpenAI", "Read a text aloud", "input:string! response_format:string"},
    {"/v1/messages", "Anthropic", "Answer a conversation", CHAT " system:any"},
    {"/v1/messages/count_tokens", "Anthropic", "Count the tokens of a conversation",
     "messages:array! system:any tools:array"},
    {"/api/generate", "Ollama", "Answer a prompt, or fill in before a suffix",
     "prompt:string! suffix:string system:string options:object stream:boolean"},
    {"/api/chat", "Ollama", "Answer a conversation",
     "messages:array! tools:array format:any options:object stream:boolean"},
    {"/api/embed", "Ollama", "Vectors of texts", "input:any!"},
    {"/api/embeddings", "Ollama", "The vector of a text", "prompt:string!"},
    {"/api/tags", "Ollama", "The models", NULL},
    {"/api/ps", "Ollama", "The open models", NULL},
    {"/api/show", "Ollama", "What a model is", "model:string!"},
    {"/api/pull", "Ollama", "Download a model", "model:string! stream:boolean"},
    {"/api/create", "Ollama", "Name a model with a system message and parameters",
     "model:string! from:string files:object system:string messages:array parameters:object "
     "stream:boolean"},
    {"/api/copy", "Ollama", "Give a model another name", "source:string! destination:string!"},
    {"/api/delete", "Ollama", "Delete a model", "model:string!"},
    {"/api/blobs/", "Ollama", "A file, by its digest, to create a model from", NULL},
    {"/api/push", "Ollama", "Refused: there is no registry", "model:string!"},
    {"/api/version", "Ollama", "The level of Ollama's interface", NULL},
    {"/completion", "llama-server", "Continue a text", COMPLETION},
    {"/completions", "llama-server", "Continue a text", COMPLETION},
    {"/infill", "llama-server", "Fill in between a prefix and a suffix",
     "input_prefix:string! input_suffix:string! input_extra:array prompt:string n_predict:integer"},
    {"/embedding", "llama-server", "Vectors of texts", "content:any!"},
    {"/embeddings", "llama-server", "Vectors of texts", "content:any!"},
    {"/rerank", "Jina", "Order texts by a query", RANK},
    {"/reranking", "Jina", "Order texts by a query", RANK},
    {"/v1/rerank", "Jina", "Order texts by a query", RANK},
    {"/v1/reranking", "Jina", "Order texts by a query", RANK},
    {"/v1/score", "vLLM", "Scores of pairs of texts", "text_1:any! text_2:any!"},
    {"/score", "vLLM", "Scores of pairs of texts", "text_1:any! text_2:any!"},
    {"/props", "llama-server", "What the server is", NULL},
    {"/slots", "llama-server", "What runs", NULL},
    {"/slots/", "llama-server", "Save, restore or erase what a slot computed", "filename:string"},
    {"/tokenize", "llama-server", "Tokens of a text", "content:string!"},
    {"/detokenize", "llama-server", "The text of tokens", "tokens:array!"},
    {"/apply-template", "llama-server", "The prompt that a conversation makes", "messages:array!"},
    {"/lora-adapters", "llama-server", "LoRA adapters, or how much of each is applied",
     "[id:integer! scale:number!"},
    {"/metrics", "llama-server", "Counts, for Prometheus", NULL},
    {"/mcp", "MCP", "The Model Context Protocol", "jsonrpc:string! method:string! params:object"},
};

static const about *find_about(const char *path) {
    for (size_t i = 0; i < sizeof abouts / sizeof *abouts; i++)
        if (!strcmp(abouts[i].path, path)) return &abouts[i];
    return NULL;
}

// ---- Bodies ------------------------------------------------------------------------------------

typedef struct field_about {
    char name[40], type[16];
    bool is_required;
} field_about;

// Reads the next field; returns where the rest begins. NULL: no more.
static const char *next_field(const char *at, field_about *out) {
    at += strspn(at, " ");
    const size_t n = strcspn(at, " "), name = strcspn(at, ":");
    if (!n) return NULL;
    out->is_required = at[n - 1] == '!';
    snprintf(out->name, sizeof out->name, "%.*s", (int)name, at);
    snprintf(out->type, sizeof out->type, "%.*s", (int)(n - name - 1 - out->is_required),
             at + name + 1);
    return at + n;
}

static void put_type(tern_json_writer *w, const field_about *f) {
    const bool is_binary = !strcmp(f->type, "binary");
    tern_json_open(w, f->name, '{');
    if (strcmp(f->type, "any") != 0) tern_json_put_text(w, "type", is_binary ? "string" : f->type);
    if (is_binary) tern_json_put_text(w, "format", "binary");
    if (!strcmp(f->type, "array")) tern_json_put_raw(w, "items", "{}");
    tern_json_close(w, '}');
}

static void put_body(tern_json_writer *w, const route *r, const char *fields) {
    const bool is_form = r->needs == NEEDS_MODEL_FORM, is_list = *fields == '[';
    field_about f;
    fields += is_list;
    tern_json_open(w, "requestBody", '{');
    tern_json_put_bool(w, "required", r->needs != NEEDS_MODEL_ALONE);
    tern_json_open(w, "content", '{');
    tern_json_open(w, is_form ? "multipart/form-data" : "application/json", '{');
    tern_json_open(w, "schema", '{');
    if (is_list) {
        tern_json_put_text(w, "type", "array");
        tern_json_open(w, "items", '{');
    }
    tern_json_put_text(w, "type", "object");
    tern_json_open(w, "properties", '{');
    if (r->needs >= NEEDS_NAME && strncmp(fields, "model:", 6) != 0)
        tern_json_put_raw(w, "model", "{\"type\":\"string\"}");
    for (const char *at = fields; (at = next_field(at, &f));) put_type(w, &f);
    tern_json_close(w, '}');
    tern_json_open(w, "required", '[');
    for (const char *at = fields; (at = next_field(at, &f));)
        if (f.is_required) tern_json_put_text(w, NULL, f.name);
    tern_json_close(w, ']');
    for (int i = 0; i < (is_list ? 5 : 4); i++) tern_json_close(w, '}');
}

// ---- Paths -------------------------------------------------------------------------------------

// A path that ends with "/" has one more part.
static bool has_part(const route *r) {
    const size_t n = strlen(r->path);
    return n > 1 && r->path[n - 1] == '/';
}

static void put_operation(tern_json_writer *w, const route *r) {
    const about *a = find_about(r->path);
    tern_json_open(w,
                   !strcmp(r->method, "GET")    ? "get"
                   : !strcmp(r->method, "POST") ? "post"
                                                : "delete",
                   '{');
    tern_json_put_text(w, "summary", a ? a->summary : "");
    tern_json_open(w, "tags", '[');
    if (a) tern_json_put_text(w, NULL, a->tag);
    tern_json_close(w, ']');
    if (has_part(r))
        tern_json_put_raw(w, "parameters",
                          "[{\"name\":\"name\",\"in\":\"path\",\"required\":true,"
                          "\"schema\":{\"type\":\"string\"}}]");
    if (r->needs == NEEDS_UPLOAD)
        tern_json_put_raw(w, "requestBody", "{\"content\":{\"application/octet-stream\":{}}}");
    else if (a && a->fields && strcmp(r->method, "GET") != 0)
        put_body(w, r, a->fields);
    if (r->needs == NEEDS_NOTHING) tern_json_put_raw(w, "security", "[]");
    tern_json_put_raw(w, "responses",
                      "{\"200\":{\"description\":\"The answer\"},"
                      "\"default\":{\"description\":\"Why there is none\"}}");
    tern_json_close(w, '}');
}

void serve_openapi(request *req) {
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    const route *r;
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "openapi", "3.1.0");
    tern_json_open(&w, "info", '{');
    tern_json_put_text(&w, "title", "tern serve");
    tern_json_put_text(&w, "version", tern_version());
    tern_json_close(&w, '}');
    tern_json_put_raw(&w, "components",
                      "{\"securitySchemes\":{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"}}}");
    if (req->server->desc->keys.n) tern_json_put_raw(&w, "security", "[{\"key\":[]}]");
    tern_json_open(&w, "paths", '{');
    for (size_t i = 0; (r = route_at(i)); i++) {
        tern_strbuf name = {0};
        if (i > 0 && !strcmp(route_at(i - 1)->path, r->path)) continue; // written with that one
        tern_strbuf_printf(&name, "%s%s", r->path, has_part(r) ? "{name}" : "");
        tern_json_open(&w, tern_strbuf_text(&name), '{');
        tern_strbuf_free(&name);
        for (size_t k = i; (r = route_at(k)) && !strcmp(r->path, route_at(i)->path); k++)
            put_operation(&w, r);
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, '}');
    tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}
