// The Model Context Protocol without pipes or sockets: messages in, answers out.
#include <string.h>
#include "apps/mcp/mcp.h"
#include "apps/mcp/mcp_head.h"
#include "base/alloc.h"
#include "tests/support/harness.h"

// ---- JSON-RPC ----------------------------------------------------------------------------------

// Seen to fail with ids of any type let through, and with a message of both a result and an error.
TEST(jsonrpc_knows_what_a_message_is) {
    static const struct {
        const char *text;
        int code, kind; // code 0: it is one of this kind
        bool has_id;
    } rows[] = {
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}", 0, JSONRPC_REQUEST, true},
        {"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"a\",\"params\":{}}", 0, JSONRPC_REQUEST,
         true},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"a\"}", 0, JSONRPC_NOTIFICATION, false},
        {"{\"jsonrpc\":\"2.0\",\"id\":-3,\"result\":null}", 0, JSONRPC_RESULT, true},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}", 0, JSONRPC_ERROR, false},
        {"{\"jsonrpc\":\"2.0\",\"error\":{\"code\":1}}", 0, JSONRPC_ERROR, false},
        {"{\"id\":1,\"method\":\"a\"}", JSONRPC_INVALID_REQUEST, 0, true},
        {"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"a\"}", JSONRPC_INVALID_REQUEST, 0, true},
        {"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"a\"}", JSONRPC_INVALID_REQUEST, 0, false},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"a\"}", JSONRPC_INVALID_REQUEST, 0, false},
        {"{\"jsonrpc\":\"2.0\",\"id\":[],\"method\":\"a\"}", JSONRPC_INVALID_REQUEST, 0, false},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", JSONRPC_INVALID_REQUEST, 0, true},
        {"{\"jsonrpc\":\"2.0\",\"id\":1}", JSONRPC_INVALID_REQUEST, 0, true},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{}}", JSONRPC_INVALID_REQUEST, 0,
         true},
        {"{\"jsonrpc\":\"2.0\",\"result\":1}", JSONRPC_INVALID_REQUEST, 0, false},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":7}", JSONRPC_INVALID_REQUEST, 0, true},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":[]}", JSONRPC_INVALID_PARAMS, 0,
         true},
        {"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}]", JSONRPC_INVALID_REQUEST, 0, false},
        {"7", JSONRPC_INVALID_REQUEST, 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tern_json_doc doc;
        jsonrpc_message m;
        jsonrpc_fault fault = {0};
        CHECK(tern_json_parse(&doc, rows[i].text, strlen(rows[i].text), NULL) == TERN_OK);
        bool ok = jsonrpc_read(&m, &doc, &fault);
        CHECK_MSG(ok == !rows[i].code && (int)fault.code == rows[i].code, "%s: %d %s", rows[i].text,
                  (int)fault.code, fault.message);
        CHECK_MSG(!ok || (int)m.kind == rows[i].kind, "%s", rows[i].text);
        CHECK_MSG(!m.id == !rows[i].has_id, "%s", rows[i].text);
        tern_json_free(&doc);
    }
}

// Seen to fail with numbers compared as doubles: 2^53 and 2^53 + 1 are two ids.
TEST(jsonrpc_ids_are_the_same_or_not) {
    static const char text[] =
        "[1, \"1\", 1, 9007199254740992, 9007199254740993, \"\", -1, 18446744073709551615]";
    static const int which[] = {0, 1, 0, 3, 4, 5, 6, 7}; // the same number: the same id
    tern_json_doc doc;
    CHECK(tern_json_parse(&doc, text, sizeof text - 1, NULL) == TERN_OK);
    const tern_json *root = tern_json_root(&doc), *list[8];
    size_t n = 0;
    for (const tern_json *e = tern_json_first(&doc, root); e; e = tern_json_next(&doc, root, e))
        list[n++] = e;
    CHECK(n == 8);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            CHECK_MSG(jsonrpc_same_id(list[i], list[k]) == (which[i] == which[k]), "%zu %zu", i, k);
    CHECK(!jsonrpc_same_id(NULL, NULL) && !jsonrpc_same_id(list[0], NULL));
    tern_json_free(&doc);
}

// Seen to fail with the rest of a long line taken for a line.
TEST(jsonrpc_lines_come_in_any_pieces) {
    static const char text[] = "{}\n\n \r\n[1]\r\n0123456789abc\n0123456789\nlast";
    static const char *const wanted[] = {"{}", " ", "[1]", NULL, "0123456789"};
    for (size_t piece = 1; piece < sizeof text; piece++) {
        jsonrpc_lines l = {.line_max = 10};
        size_t n = 0;
        for (size_t at = 0; at < sizeof text - 1; at += piece) {
            size_t rest = sizeof text - 1 - at;
            tern_str line;
            jsonrpc_lines_add(&l, text + at, rest < piece ? rest : piece);
            for (jsonrpc_line got; (got = jsonrpc_lines_next(&l, &line)) != JSONRPC_NO_LINE; n++) {
                CHECK(n < 5);
                if (n >= 5) break;
                CHECK_MSG(got == (wanted[n] ? JSONRPC_LINE : JSONRPC_LONG_LINE), "piece %zu",
                          piece);
                if (got == JSONRPC_LINE && wanted[n])
                    CHECK_MSG(tern_str_is(line, wanted[n]), "piece %zu: %.*s", piece, (int)line.len,
                              line.ptr);
            }
        }
        CHECK_MSG(n == 5, "pieces of %zu: %zu lines", piece, n);
        jsonrpc_lines_free(&l);
    }
}

// ---- The protocol ------------------------------------------------------------------------------

static const mcp_tool tool = {"echo", "{\"name\":\"echo\",\"inputSchema\":{}}"};
static const mcp_tool *const tools[] = {&tool};
static const mcp_server_info server = {"tern", "tern", "1.0", "For tests.", tools, 1};

#define V    "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\""
#define C    "\"io.modelcontextprotocol/clientCapabilities\":{}"
#define META "\"_meta\":{" V "," C "}"
#define CALL(id, method, params)                                                                   \
    "{\"jsonrpc\":\"2.0\",\"id\":" #id ",\"method\":\"" method "\",\"params\":{" params "}}"

typedef struct row {
    const char *text, *version, *method, *name; // header fields, of HTTP if version is not NULL
    int step, status;
    const char *says; // a part of the answer
} row;

// Each row is a rule of one of the two revisions. Seen to fail, among others, with the header's
// version not compared, with `ping` answered in the modern era, and with the name not decoded.
TEST(mcp_answers_by_the_rules_of_both_eras) {
    static const row rows[] = {
        // Legacy, over pipes and over HTTP.
        {CALL(1, "initialize", "\"protocolVersion\":\"2025-06-18\""), NULL, NULL, NULL, MCP_ANSWER,
         200, "\"protocolVersion\":\"2025-06-18\""},
        {CALL(1, "initialize", "\"protocolVersion\":\"2026-07-28\""), NULL, NULL, NULL, MCP_ANSWER,
         200, "\"protocolVersion\":\"2025-11-25\""},
        {CALL(1, "initialize", ""), NULL, NULL, NULL, MCP_ANSWER, 200, "-32602"},
        {CALL("a", "ping", ""), NULL, NULL, NULL, MCP_ANSWER, 200,
         "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}"},
        {CALL(1, "tools/list", ""), "2025-11-25", NULL, NULL, MCP_ANSWER, 200,
         "\"result\":{\"tools\":[{\"name\":\"echo\""},
        {CALL(1, "tools/list", "\"cursor\":\"x\""), NULL, NULL, NULL, MCP_ANSWER, 200, "-32602"},
        {CALL(1, "tools/call", "\"name\":\"echo\""), NULL, NULL, NULL, MCP_CALL, 200, NULL},
        {CALL(1, "tools/call", "\"name\":\"echo\",\"arguments\":[]"), NULL, NULL, NULL, MCP_ANSWER,
         200, "-32602"},
        {CALL(1, "tools/call", "\"name\":\"other\""), NULL, NULL, NULL, MCP_ANSWER, 200, "-32602"},
        {CALL(1, "tools/call", ""), NULL, NULL, NULL, MCP_ANSWER, 200, "-32602"},
        {CALL(1, "resources/list", ""), NULL, NULL, NULL, MCP_ANSWER, 200, "-32601"},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}", NULL, NULL, NULL,
         MCP_SILENT, 200, NULL},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/"
         "cancelled\",\"params\":{\"requestId\":7}}",
         NULL, NULL, NULL, MCP_CANCEL, 200, NULL},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", NULL, NULL, NULL, MCP_SILENT, 200, NULL},
        {"[]", NULL, NULL, NULL, MCP_ANSWER, 400, "-32600"},
        // Modern: what a request says of itself.
        {CALL(1, "server/discover", META), NULL, NULL, NULL, MCP_ANSWER, 200,
         "\"supportedVersions\":[\"2026-07-28\"]"},
        {CALL(1, "server/discover", META), "2026-07-28", "server/discover", NULL, MCP_ANSWER, 200,
         "\"resultType\":\"complete\""},
        {CALL(1, "server/discover", ""), NULL, NULL, NULL, MCP_ANSWER, 400, "-32602"},
        {CALL(1, "tools/list", ""), "2026-07-28", "tools/list", NULL, MCP_ANSWER, 400, "-32602"},
        {CALL(1, "tools/list", "\"_meta\":{" C "}"), "2026-07-28", "tools/list", NULL, MCP_ANSWER,
         400, "-32602"},
        {CALL(1, "tools/list", "\"_meta\":{" V "}"), NULL, NULL, NULL, MCP_ANSWER, 400, "-32602"},
        {CALL(1, "tools/list", META), NULL, NULL, NULL, MCP_ANSWER, 200,
         "\"cacheScope\":\"private\""},
        {CALL(1, "tools/list",
              "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"1900-01-01\"}"),
         NULL, NULL, NULL, MCP_ANSWER, 400,
         "\"data\":{\"supported\":[\"2026-07-28\"],\"requested\":\"1900-01-01\"}"},
        {CALL(1, "tools/list", ""), "1900-01-01", NULL, NULL, MCP_ANSWER, 400, "-32022"},
        {CALL(1, "ping", META), "2026-07-28", "ping", NULL, MCP_ANSWER, 404, "-32601"},
        {CALL(1, "initialize", META ",\"protocolVersion\":\"2026-07-28\""), NULL, NULL, NULL,
         MCP_ANSWER, 404, "-32601"},
        // Modern: header fields that repeat it.
        {CALL(1, "tools/list", META), "2025-11-25", "tools/list", NULL, MCP_ANSWER, 400, "-32020"},
        {CALL(1, "tools/list", META), "", "tools/list", NULL, MCP_ANSWER, 400, "-32020"},
        {CALL(1, "tools/list", META), "2026-07-28", "TOOLS/LIST", NULL, MCP_ANSWER, 400, "-32020"},
        {CALL(1, "tools/list", META), "2026-07-28", NULL, NULL, MCP_ANSWER, 400, "-32020"},
        {CALL(1, "tools/call", META ",\"name\":\"echo\""), "2026-07-28", "tools/call", "echo",
         MCP_CALL, 200, NULL},
        {CALL(1, "tools/call", META ",\"name\":\"echo\""), "2026-07-28", "tools/call",
         "=?base64?ZWNobw==?=", MCP_CALL, 200, NULL},
        {CALL(1, "tools/call", META ",\"name\":\"echo\""), "2026-07-28", "tools/call",
         "=?base64?ZWNobx==?=", MCP_ANSWER, 400, "-32020"},
        {CALL(1, "tools/call", META ",\"name\":\"echo\""), "2026-07-28", "tools/call", "other",
         MCP_ANSWER, 400, "-32020"},
        {CALL(1, "tools/call", META ",\"name\":\"echo\""), "2026-07-28", "tools/call", NULL,
         MCP_ANSWER, 400, "-32020"},
        {CALL(1, "prompts/get", META ",\"name\":\"p\""), "2026-07-28", "prompts/get", "p",
         MCP_ANSWER, 404, "-32601"},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}", "2026-07-28", "notifications/y",
         NULL, MCP_ANSWER, 400, "-32020"},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}", "2026-07-28", "notifications/x",
         NULL, MCP_SILENT, 200, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        const char *fields[] = {r->version, r->method, r->name};
        tern_str f[3];
        tern_json_doc doc;
        mcp_call c;
        tern_strbuf out = {0};
        for (int k = 0; k < 3; k++)
            f[k] = fields[k] && *fields[k] ? (tern_str){fields[k], strlen(fields[k])}
                                           : (tern_str){NULL, 0};
        const mcp_head head = {r->version != NULL, f[0], f[1], f[2]};
        CHECK_MSG(tern_json_parse(&doc, r->text, strlen(r->text), NULL) == TERN_OK, "%s", r->text);
        mcp_step step = mcp_take(&server, &head, &doc, &c, &out);
        CHECK_MSG((int)step == r->step && c.status == r->status, "%s: step %d, status %d, %s",
                  r->text, (int)step, c.status, tern_strbuf_text(&out));
        CHECK_MSG(!r->says == !out.len && (!r->says || strstr(out.ptr, r->says)), "%s: %s", r->text,
                  tern_strbuf_text(&out));
        tern_strbuf_free(&out);
        tern_json_free(&doc);
    }
}

TEST(mcp_fields_in_base64_are_what_they_stand_for) {
    static const struct {
        const char *field, *text;
        bool is_same;
    } rows[] = {{"plain", "plain", true},
                {"", "", true},
                {"=?base64?"
                 "?=",
                 "", true}, // in one piece it has a trigraph
                {"=?base64?SGVsbG8=?=", "Hello", true},
                {"=?base64?SGVsbG8?=", "Hello", false},
                {"=?base64?SGVs!!!bG8=?=", "Hello", false},
                {"=?base64?SGVsbG8=", "=?base64?SGVsbG8=", true},
                {"SGVsbG8=", "SGVsbG8=", true},
                {"=?base64?4oKs?=", "\xE2\x82\xAC", true},
                {"=?base64?4oKt?=", "\xE2\x82\xAC", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_MSG(mcp_field_says((tern_str){rows[i].field, strlen(rows[i].field)},
                                 (tern_str){rows[i].text, strlen(rows[i].text)}) == rows[i].is_same,
                  "%s", rows[i].field);
}
