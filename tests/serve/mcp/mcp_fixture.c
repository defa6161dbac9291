// tern serve with other tools: those that MCP's conformance suite calls by their names, through the
// same protocol and server. Their results are fixed.
//
//     build/mcp_fixture MODEL        says in its log where it listens
#include <stdio.h>
#include <string.h>
#include "apps/serve/api/mcp/mcp_server.h"

#include "mcp_fixture.inc"

#define TEXT "{\"type\":\"text\",\"text\":\"A text.\"}"
#define IMAGE                                                                                      \
    "{\"type\":\"image\",\"data\":\"R0lGODdhAQABAIAAAP///"                                         \
    "wAAACwAAAAAAQABAAACAkQBADs=\",\"mimeType\":\"image/gif\"}"
#define SOUND                                                                                      \
    "{\"type\":\"audio\",\"data\":\"UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="  \
    "\",\"mimeType\":\"audio/wav\"}"
#define RESOURCE                                                                                   \
    "{\"type\":\"resource\",\"resource\":{\"uri\":\"test://a\",\"mimeType\":\"text/"               \
    "plain\",\"text\":\"A resource.\"}}"

static const struct {
    const char *name, *content;
} results[] = {
    {"test_simple_text", "[" TEXT "]"},
    {"test_image_content", "[" IMAGE "]"},
    {"test_audio_content", "[" SOUND "]"},
    {"test_embedded_resource", "[" RESOURCE "]"},
    {"test_multiple_content_types", "[" TEXT "," IMAGE "," SOUND "," RESOURCE "]"},
};

static void say(request *req) {
    const char *name = req->mcp->call.tool->name, *content = "[" TEXT "]";
    tern_strbuf line = {0};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (!strcmp(name, results[i].name)) content = results[i].content;
    tern_json_writer w = mcp_open_result(&req->mcp->call, &line);
    tern_json_put_raw(&w, "content", content);
    mcp_close_result(&w);
    mcp_reply(req, 200, &line);
    tern_strbuf_free(&line);
}

static void fail_tool(request *req) {
    api_error e = {0};
    api_fail(&e, 400, NULL, NULL, "this tool always fails");
    reply_error(req, &e);
}

static void tell_progress(request *req) {
    mcp_begin_stream(req);
    for (int i = 0; i <= 100 && req->mcp->call.progress && req->is_stream; i += 50) {
        tern_strbuf line = {0};
        mcp_put_progress(&req->mcp->call, i, 100, &line);
        mcp_put_event(req, &line, &req->piece);
        reply_piece(req, &req->piece);
        tern_strbuf_free(&line);
    }
    say(req);
}

static void miss_capability(request *req) {
    tern_strbuf line = {0};
    mcp_put_error(&req->mcp->call, MCP_MISSING_CAPABILITY, "this tool needs sampling",
                  "{\"requiredCapabilities\":{\"sampling\":{}}}", &line);
    mcp_reply(req, 400, &line);
    tern_strbuf_free(&line);
}

static const serve_tool list[] = {
    {"test_simple_text", NULL, say},
    {"test_image_content", NULL, say},
    {"test_audio_content", NULL, say},
    {"test_embedded_resource", NULL, say},
    {"test_multiple_content_types", NULL, say},
    {"test_error_handling", NULL, fail_tool},
    {"test_tool_with_progress", NULL, tell_progress},
    {"test_logging_tool", NULL, say},
    {"test_streaming_elicitation", NULL, say},
    {"test_missing_capability", NULL, miss_capability},
    {"json_schema_2020_12_tool", NULL, say},
};
static const struct serve_tools tools = {
    {(const char *)fixture_mcp_fixture_json, sizeof fixture_mcp_fixture_json},
    list,
    sizeof list / sizeof *list};

int main(int argc, char **argv) {
    const serve_model model = {.path = argc > 1 ? argv[1] : "models/stories.gguf"};
    const serve_desc desc = {.models = &model,
                             .n_models = 1,
                             .opening = {.n_threads = 1},
                             .keep_seconds = -1,
                             .session = {.n_context = 256},
                             .n_parallel = 2,
                             .n_queue = 16,
                             .cache_memory = 1 << 20,
                             .tools = &tools,
                             .host = "127.0.0.1",
                             .body_bytes = 1 << 20,
                             .n_connections = 64,
                             .idle_seconds = 60};
    tern_error err = {0};
    if (serve(&desc, &err) == TERN_OK) return 0;
    fprintf(stderr, "mcp_fixture: %s\n", err.message);
    return 1;
}
