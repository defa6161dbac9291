// The header fields that repeat parts of a modern request's body, so that proxies need not read it.
#ifndef TERN_MCP_MCP_HEAD_H
#define TERN_MCP_MCP_HEAD_H

#include "apps/mcp/mcp.h"

// Whether Mcp-Method and Mcp-Name are present if required, and agree with the body. False: `why`,
// of n bytes, says which field does not.
bool mcp_head_agrees(const mcp_head *h, const jsonrpc_message *m, char *why, size_t n);
// Whether a field's value is the text: literally, or as "=?base64?...?=" if a field cannot have it
// literally.
bool mcp_field_says(tern_str field, tern_str text);

#endif
