// JSON, read into a flat array of nodes.
//
// Our own code rather than a library because the same reader must run in WebAssembly, must cap
// depth and size on hostile input, and must parse a 10 MB tokenizer.json with half a million nodes
// in a few tens of milliseconds: nodes are 24 bytes in one array, and strings without escapes stay
// in the text. Accepts RFC 8259 and nothing else, except for a leading UTF-8 byte-order mark.
#ifndef TERN_BASE_JSON_H
#define TERN_BASE_JSON_H

#include "base/status.h"
#include "base/strbuf.h"

typedef enum tern_json_type {
    TERN_JSON_NULL,
    TERN_JSON_BOOL,
    TERN_JSON_NUMBER,
    TERN_JSON_STRING,
    TERN_JSON_ARRAY,
    TERN_JSON_OBJECT,
} tern_json_type;

#define TERN_JSON_DEPTH_MAX 128

typedef enum tern_json_spelling {
    TERN_JSON_WHOLE,    // digits, below 2^53: the double is the number
    TERN_JSON_FRACTION, // with a point or an exponent
    // Digits beyond the precision of a double: the next node, which belongs to this one and is
    // hidden from iteration, is a string of them.
    TERN_JSON_LONG,
} tern_json_spelling;

// A value in a document. Members of an object come as pairs of nodes: key, value, key, value.
typedef struct tern_json {
    uint32_t type; // tern_json_type
    uint32_t n;    // string: bytes; array: elements; object: members; bool: the value;
                   // number: tern_json_spelling
    uint32_t next; // index of the node after this value's subtree
    uint32_t line; // where it begins, for messages
    union {
        const char *text; // string, not terminated; the root's: json_index.h
        double number;
    };
} tern_json;

typedef struct tern_json_doc {
    tern_json *nodes; // nodes[0] is the root
    size_t n_nodes;
    char *unescaped; // room for the strings that had escapes
} tern_json_doc;

// Parses text[0..n); text must outlive the document. Messages say line and reason.
tern_status tern_json_parse(tern_json_doc *doc, const char *text, size_t n, tern_error *err);
// The same for a part of a file, such as a line: messages say the reason alone, as the caller knows
// the place.
tern_status tern_json_parse_part(tern_json_doc *doc, const char *text, size_t n, tern_error *err);
void tern_json_free(tern_json_doc *doc);
// Reduces the document to one of its values.
void tern_json_keep(tern_json_doc *doc, const tern_json *value);

// All of these accept a NULL value and return NULL, so that look-ups may be chained.
const tern_json *tern_json_root(const tern_json_doc *doc);
const tern_json *tern_json_get(const tern_json_doc *doc, const tern_json *object, const char *key);
// The same for "a.b.c".
const tern_json *tern_json_path(const tern_json_doc *doc, const char *dotted_path);
// Iteration: first child (of an object: its first key), then the node after `value`'s subtree;
// NULL after the last one. The parent must be given.
const tern_json *tern_json_first(const tern_json_doc *doc, const tern_json *parent);
const tern_json *tern_json_next(const tern_json_doc *doc, const tern_json *parent,
                                const tern_json *value);
// The value of a key node.
const tern_json *tern_json_value_of(const tern_json_doc *doc, const tern_json *key);

bool tern_json_is(const tern_json *value, tern_json_type type);
tern_str tern_json_str(const tern_json *value);                    // {NULL, 0}: not a string
double tern_json_number(const tern_json *value, double otherwise); // otherwise: not a number
// Whole numbers from -2^53 to 2^53; `otherwise` also for larger ones.
int64_t tern_json_int(const tern_json *value, int64_t otherwise);
// Exact whole numbers: -2^63 to 2^64 - 1, negative ones in two's complement. False: something else.
bool tern_json_whole(const tern_json *value, uint64_t *out, bool *is_negative);
bool tern_json_bool(const tern_json *value, bool otherwise);

#endif
