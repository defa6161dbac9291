// The header fields that repeat what a modern request's body says, so that proxies need not read
// it.
#ifndef TERN_MCP_MCP_HEAD_H
#define TERN_MCP_MCP_HEAD_H

#include "apps/mcp/mcp.h"

// Whether Mcp-Method and Mcp-Name are there where they must be, and say what the body says. False:
// `why`, of n bytes, says which does not.
bool mcp_head_agrees(const mcp_head *h, const jsonrpc_message *m, char *why, size_t n);
// Whether a field says the text: as it is, or as "=?base64?...?=", where it could not be a field.
bool mcp_field_says(tern_str field, tern_str text);

#endif
