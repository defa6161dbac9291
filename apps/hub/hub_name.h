// What hub's files share about names. Comparisons ignore case, since file systems and people
// differ.
#ifndef TERN_HUB_NAME_H
#define TERN_HUB_NAME_H

#include "apps/hub/hub.h"
#include "base/strbuf.h"

bool hub_begins(tern_str s, const char *front);
bool hub_ends(tern_str s, const char *end);
bool hub_same(tern_str a, tern_str b);
tern_str hub_last_part(tern_str path); // after the last slash
// Whether it may be a folder's name: letters, digits, "-", "_" and ".", not beginning with ".".
bool hub_is_word(tern_str s);

// A file's name without folder, ".gguf" and "-00001-of-00003".
tern_str hub_stem(tern_str path);
// The quantization in a file's name: "Q4_K_M" for "a-Q4_K_M-00001-of-00002.gguf", or empty.
tern_str hub_quantization(tern_str path);
// Whether it is a part of a split set, and which, from 1.
bool hub_split(tern_str path, unsigned *part, unsigned *n_parts);

// "hf:OWNER/NAME[/INSIDE][:QUANTIZATION][@REVISION]", also with "hf://", and with a file name in
// place of the quantization; or the address of a page; or a short name. Missing parts are empty.
// The result points into the text, or into the table of short names.
typedef struct hub_name {
    tern_str owner, name, inside, quantization, revision;
} hub_name;
// endpoint: the address of another hub whose pages are recognized, too; NULL: only Hugging Face's.
bool hub_name_read(hub_name *out, const char *text, size_t n, const char *endpoint);

#endif
