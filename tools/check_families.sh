#!/bin/sh
# Architectures own their facts: outside of src/models no code spells the name of one, as files have
# it, nor uses one's symbol, nor writes the marks of one's texts ("<|"): what sees, hears and speaks
# has contracts (models/arch_media.h). The names are read from the tables of src/models, so a new
# family is looked for as soon as it is there. And models.h has no member of tern_config that one
# family's file alone reads.
#
# Seen to fail: with session/media/see.c writing "<|img_thumbnail|>", and with tern_config.whisper,
# .streaming and .rope_rates.
set -eu
status=0
names=$(sed -n '/^static const char \*const \(gguf_names\|hf_types\)\[\]/,/;/p' src/models/*.c src/models/*/*.c |
    grep -oE '"[^"]+"' | sort -u)
[ -n "$names" ] || { echo "src/models: no names of architectures were found" >&2; exit 1; }
# What is spelled the same and is something else: kinds and cutters of vocabularies, a quantizer of
# transformers, recipes of training, chat templates that a model's own name tells; and the reader of a
# kind of file that one family alone has.
same='^src/input/([a-z]*/)?(tok_[a-z]*|learn|template_model)\.c:|^src/formats/hf/hf\.c:.*quant_method|^src/formats/hf/hf\.c:.*"bitnet"\)\)|recipes\[\]|^src/formats/gguf/whisper_bin\.c:'
found=$(grep -rnFe "$names" src apps --include='*.c' --include='*.h' --include='*.inl' |
    grep -vE '^src/models/|^[^:]*_test\.c:|^[^:]*fixture\.h:' | grep -vE "$same" |
    sed 's://.*::' | grep -Fe "$names" || true)
symbols=$(grep -rhoE '^extern const tern_arch tern_arch_[a-z0-9_]+|^const tern_arch tern_arch_[a-z0-9_]+' src/models |
    sed 's/.* //' | sort -u)
[ -n "$symbols" ] || { echo "src/models: no symbols of architectures were found" >&2; exit 1; }
found="$found$(grep -rnwFe "$symbols" src apps tests tools bench fuzz examples --include='*.[ch]' |
    grep -v '^src/models/' || true)"
if [ -n "$found" ]; then
    echo "$found" >&2
    echo "  ^ src/models alone names architectures: ask tern_arch or tern_arch_row" >&2
    status=1
fi
# Marks of no family alone: those of vocabularies that tern itself learns, words of help, stops of
# published evaluations, the kind of file that one family alone has.
marks='^src/train/data/|^apps/cli/|^src/tasks/eval/eval_tasks\.c:|^src/formats/gguf/whisper_bin\.c:'
# What only one family reads of a config is in tern_config.own, a struct of its file. Tests that make
# configs count as readers.
members=$(sed -n '/^typedef struct tern_config {/,/^} tern_config;/p' src/models/models.h |
    sed -n 's://.*::; s/^    [a-z_0-9]* \**\([a-z].*\);.*/\1/p' | sed 's/\[[^]]*\]//g' | tr -d ' *' | tr ',' '\n')
[ -n "$members" ] || { echo "src/models/models.h: no members of tern_config were found" >&2; exit 1; }
found=$(grep -roE '\b(c|config)(\.|->)[a-z_0-9]+' src apps tests --include='*.[ch]' | sed 's/:.*[.>]/ /' | sort -u |
    awk -v members="$members" 'BEGIN { n = split(members, list); for (i = 1; i <= n; i++) wanted[list[i]] }
        $2 in wanted { n_files[$2]++; file[$2] = $1 }
        END { for (m in n_files) if (n_files[m] == 1 && file[m] ~ "^src/models/(text|media)/")
            print "src/models/models.h: only " file[m] " reads tern_config." m ": it belongs there (TERN_OWN_CONFIG)" }')
if [ -n "$found" ]; then
    echo "$found" >&2
    status=1
fi
found=$(grep -rnE '"[^"]*<\|' src apps --include='*.[ch]' --include='*.inl' |
    grep -vE '^src/(models|input)/|^[^:]*_test\.c:|^[^:]*:[0-9]+: *//' | grep -vE "$marks" || true)
if [ -n "$found" ]; then
    echo "$found" >&2
    echo "  ^ what one family alone has is in its file: ask its media (models/arch_media.h)" >&2
    status=1
fi
exit $status
