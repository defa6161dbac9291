// The tools that the server offers to MCP clients, and their handlers. mcp_tools.json has their
// descriptions and schemas, for the models that call them, in the order of tools/list.
#include "apps/serve/api/mcp/mcp_server.h"

// tools/embed_files.sh makes it.
#include "mcp_tools.inc"

static bool can_generate(const server *s) {
    return s->desc->folder || mcp_model_for(s, "completion");
}
static bool can_embed(const server *s) { return s->desc->folder || mcp_model_for(s, "embedding"); }
static bool has_memory(const server *s) { return s->mcp->memory != NULL; }

static const serve_tool list[] = {
    {"generate", can_generate, mcp_generate}, {"embed", can_embed, mcp_embed},
    {"remember", has_memory, mcp_remember},   {"recall", has_memory, mcp_recall},
    {"forget", has_memory, mcp_forget},
};

const struct serve_tools serve_tools = {
    {(const char *)mcp_mcp_tools_json, sizeof mcp_mcp_tools_json},
    list,
    sizeof list / sizeof *list,
};
