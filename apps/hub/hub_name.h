// What hub's files share about names. Compared without case: file systems and people differ.
#ifndef TERN_HUB_NAME_H
#define TERN_HUB_NAME_H

#include "apps/hub/hub.h"
#include "base/strbuf.h"

bool hub_begins(tern_str s, const char *front);
bool hub_ends(tern_str s, const char *end);
bool hub_same(tern_str a, tern_str b);
tern_str hub_last_part(tern_str path); // after the last slash
// Letters, digits, "-", "_" and ".", not with a point in front: what may be a folder's name.
bool hub_is_word(tern_str s);

// A file's name without folder, ".gguf" and "-00001-of-00003".
tern_str hub_stem(tern_str path);
// What a file's name says of its weights: "Q4_K_M" of "a-Q4_K_M-00001-of-00002.gguf", or nothing.
tern_str hub_quantization(tern_str path);
// Whether it is a part of a split set, and which, from 1.
bool hub_split(tern_str path, unsigned *part, unsigned *n_parts);

// "hf:OWNER/NAME[/INSIDE][:QUANTIZATION][@REVISION]", also with "hf://" in front and with a file
// for the quantization; or the address of a page; or a short name. What is not there is empty. It
// points into the text, or into the table of short names.
typedef struct hub_name {
    tern_str owner, name, inside, quantization, revision;
} hub_name;
// endpoint: a hub's address whose pages are also known; NULL: only Hugging Face's.
bool hub_name_read(hub_name *out, const char *text, size_t n, const char *endpoint);

#endif
