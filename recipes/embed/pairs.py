#!/usr/bin/env python3
"""Pairs for the embedding model that the repository carries: files of JSON lines for `tern train --contrastive`.

    recipes/embed/pairs.py TEXT OUT [--novels N] [--versions N]

TEXT is a folder with any of
    snakes_synthetic/{textbook,stories}.{train,val}.txt   "REQUEST<start>TEXT<end>" again and again (MIT)
    openstax/cc-by/*.txt                                  books, "# TITLE" before each section (CC BY)
    english_novels_100/*.txt                              public-domain novels
    misc/dolly_hhrlhf_train_small.jsonl, misc/gsm8k_train.jsonl   requests with answers
    tinystories/tiny_stories_944k.txt                     stories (CDLA-Sharing-1.0)
OUT gets
    train.jsonl       {"query": ..., "positive": ...}, pairs of the same document near each other, so that with
                      --in-order a step has wrong answers that are hard to tell from the right one
    valid.jsonl       of documents that train.jsonl has nothing of
    test-KIND.jsonl   the same for score.py: KIND is heading, question, sentence, words or request
The same input gives the same files. Each version of train.jsonl's pairs, one after the other, cuts other passages and
asks for other things, so that a longer training reads few of them twice. Nobody wrote these queries: a passage gets
    heading    the title that it stands under
    question   "What is X?" where a sentence says "X is ..."; and requests with their answers
    sentence   one of its own sentences, which is then mostly taken out of it
    next       the passage before it
    words      a few of its rarest words, in any order
    request    what its document answers
"""
import argparse
import collections
import concurrent.futures
import glob
import json
import os
import random
import re

PASSAGE = 600        # bytes at most,
PASSAGE_LEAST = 90   # at least
TEST_EVERY = 20      # one document in twenty is held out: half for validation, half for the test
TEST_MOST = 1000     # pairs of a kind in the test
BLOCK = 8            # pairs of one document that stay together
SMALL = set("""a about after again all also an and any are as at be because been before but by can could did do does
    for from had has have he her here him his how i if in into is it its just like may me more most much my no not now
    of on one only or other our out over own said she should so some such than that the their them then there these
    they this those through to too under up very was we well were what when where which while who why will with would
    you your""".split())


def words_of(text):
    return re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower())


def sentences(text):
    return [s.strip() for s in re.split(r"(?<=[.!?])[\"”’)]*\s+(?=[A-Z\"“'‘(])", text) if s.strip()]


def clean(text):
    return re.sub(r"\s+", " ", re.sub(r"[*_`#]+", "", text)).strip()


def passages(paragraphs, rng):
    """Neighbouring paragraphs as passages of PASSAGE bytes at most, cut between sentences, of different lengths."""
    made, now, most = [], "", rng.randrange(200, PASSAGE)
    for paragraph in paragraphs:
        for line in sentences(clean(paragraph)):
            if now and len(now) + len(line) > most:
                made.append(now)
                now, most = "", rng.randrange(200, PASSAGE)
            now = f"{now} {line}" if now else line
        if len(now) > most // 2:
            made.append(now)
            now, most = "", rng.randrange(200, PASSAGE)
    if now:
        made.append(now)
    return [p[:PASSAGE] for p in made if len(p) >= PASSAGE_LEAST]


# ---- Documents: (source, title or None, request or None, paragraphs) -------------------------------------------


def synthetic(path, source):
    """Articles with bold headings, stories: each under its request; an article's sections under headings of their own."""
    for part in read(path).split("<end>"):
        request, found, body = part.partition("<start>")
        if not found:
            continue
        request = request.strip()
        subject = re.sub(r"^(?:Write|Tell|Give|Create)\b.*?\b(?:about|called|entitled|titled|on|of)\b", "", request).strip(" .`'\"")
        subject = None if re.match(r"(?:Write|Tell|Give|Create)\b", subject) else subject or None
        sections, title = [], None
        for paragraph in body.split("\n\n"):
            heading = re.fullmatch(r"\*\*(.{3,80}?):?\*\*:?", paragraph.strip())
            if heading:
                title = heading.group(1)
            elif paragraph.strip():
                sections.append((title, paragraph))
        yield source, subject, request, sections


def books(paths):
    for path in paths:
        title, paragraphs = None, []
        for block in re.split(r"\n\s*\n", read(path)):
            heading = re.match(r"# (.+)", block.strip())
            if heading:
                if paragraphs:
                    yield "book", title, None, [(None, p) for p in paragraphs]
                title, paragraphs = heading.group(1).strip(), []
            elif not re.match(r"Learning Outcomes|By the end of this|- ", block.strip()):
                paragraphs.append(block)
        if paragraphs:
            yield "book", title, None, [(None, p) for p in paragraphs]


def novels(paths):
    """Each twenty paragraphs are a document: a novel has no titles to learn from."""
    for path in paths:
        blocks = [b for b in re.split(r"\n\s*\n", read(path)) if len(b) > 40]
        for i in range(0, len(blocks), 20):
            yield "novel", None, None, [(None, b) for b in blocks[i:i + 20]]


def answers(path):
    for line in read(path).splitlines():
        said = json.loads(line)
        request = said.get("question") or said.get("prompt", "").split("### Instruction:")[-1].split("### Response")[0]
        answer = re.sub(r"<<.*?>>", "", said.get("answer") or said.get("response", ""))
        if 8 < len(request.strip()) < 500 and len(answer) > 20:
            yield "answer", None, clean(request), [(None, answer)]


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def documents(folder, n_novels):
    for kind, source in (("textbook", "article"), ("stories", "story")):
        for part in ("train", "val"):
            path = f"{folder}/snakes_synthetic/{kind}.{part}.txt"
            if os.path.exists(path):
                yield from synthetic(path, source)
    yield from books(sorted(glob.glob(f"{folder}/openstax/cc-by/*.txt")))
    for name in ("dolly_hhrlhf_train_small", "gsm8k_train"):
        if os.path.exists(f"{folder}/misc/{name}.jsonl"):
            yield from answers(f"{folder}/misc/{name}.jsonl")
    paths = sorted(glob.glob(f"{folder}/english_novels_100/*.txt"))
    yield from novels(random.Random(1).sample(paths, min(n_novels, len(paths))))
    tiny = f"{folder}/tinystories/tiny_stories_944k.txt"
    if os.path.exists(tiny):
        for text in read(tiny).split("<|endoftext|>"):
            yield "story", None, None, [(None, p) for p in text.split("\n\n")]


# ---- Pairs of a document ---------------------------------------------------------------------------------------


def of_definition(passage, rng):
    """"What is X?" of "X is ...": X at the beginning of a sentence, a few words long."""
    for line in sentences(passage):
        found = re.match(r"((?:An? |The )?[A-Z]?[\w'-]+(?: [\w'-]+){0,3}?) (is|are|was|were) "
                         r"(?:an? |the |one |called |when |known )", line)
        if found and words_of(found.group(1)) and words_of(found.group(1))[0] not in SMALL - {"a", "an", "the"}:
            subject, verb = found.groups()
            subject = subject if subject.split()[0] not in ("A", "An", "The") else subject[0].lower() + subject[1:]
            frame = rng.choice(("What {v} {s}?", "What {v} {s}?", "{s}", "Tell me what {s} {v}.", "define {s}", "meaning of {s}"))
            return frame.format(v=verb, s=subject)
    return None


def of_sentence(passage, rng):
    """(a sentence, the passage, mostly without it)"""
    lines = sentences(passage)
    fit = [i for i, s in enumerate(lines) if 30 < len(s) < 250]
    if len(lines) < 3 or not fit:
        return None
    i = rng.choice(fit)
    rest = lines if rng.random() < 0.15 else lines[:i] + lines[i + 1:]
    return lines[i], " ".join(rest)


def of_words(passage, rarity, rng):
    found = sorted({w for w in words_of(passage) if w not in SMALL and len(w) > 2}, key=lambda w: (rarity.get(w, 0), w))
    if len(found) < 6:
        return None
    some = rng.sample(found[:10], rng.randrange(2, 6))
    return " ".join(some)


def pairs_of(job):
    """[(kind, query, positive)] of a document, in its order."""
    seed, (source, title, request, sections), rarity = job
    rng = random.Random(seed)
    made = []
    texts = []
    for heading in dict.fromkeys(h for h, _ in sections):
        for passage in passages([p for h, p in sections if h == heading], rng):
            texts.append((heading, passage))
    for i, (heading, passage) in enumerate(texts):
        if request and (i < 2 or rng.random() < 0.3):
            kind = "question" if source == "answer" else "request"
            made.append((kind, request if rng.random() < 0.6 or not title else title, passage))
        if heading and title and len(clean(heading).split()) < 12:
            query = clean(heading) if rng.random() < 0.4 else f"{clean(heading)} - {title}"
            made.append(("heading", query, passage))
        elif source == "book" and title and not title.startswith("Introduction") and rng.random() < 0.5:
            made.append(("heading", title, passage))
        if source != "story" and source != "novel":
            question = of_definition(passage, rng)
            if question:
                made.append(("question", question, passage))
        if source != "answer":
            both = of_sentence(passage, rng)
            if both and rng.random() < (0.9 if source in ("book", "article") else 0.45):
                made.append(("sentence", *both))
            if i and rng.random() < 0.12:
                made.append(("next", texts[i - 1][1], passage))
        if rng.random() < (0.5 if source in ("book", "article") else 0.25):
            query = of_words(passage, rarity, rng)
            if query:
                made.append(("words", query, passage))
    return [p for p in made if len(p[2]) >= 40]


# ---- Files -----------------------------------------------------------------------------------------------------


def document_frequency(docs):
    counts = collections.Counter()
    for doc in docs:
        counts.update({w for _, p in doc[3] for w in words_of(p)})
    return counts


def write(path, pairs):
    with open(path, "w", encoding="utf-8") as file:
        for _, query, positive in pairs:
            file.write(json.dumps({"query": query, "positive": positive}, ensure_ascii=False) + "\n")


def is_held_out(doc):
    """By what it says and not by its place: the same story twice is held out twice or not at all."""
    return int.from_bytes(clean(doc[3][0][1])[:80].encode(), "big") % 1000003 % TEST_EVERY == 0 if doc[3] else True


def shuffled_blocks(lists, rng):
    """Pairs of one document together, BLOCK at a time; the blocks in any order."""
    blocks = []
    for pairs in lists:
        rng.shuffle(pairs)
        blocks += [pairs[i:i + BLOCK] for i in range(0, len(pairs), BLOCK)]
    rng.shuffle(blocks)
    return [p for b in blocks for p in b]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--novels", type=int, default=100, help="how many of them, at most (100)")
    parser.add_argument("--versions", type=int, default=1, help="of the pairs to train on (1)")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    docs = [d for d in documents(args.text, args.novels) if d[3]]
    rarity = document_frequency(docs)
    rng, train = random.Random(2), []
    with concurrent.futures.ProcessPoolExecutor(initializer=keep, initargs=(docs, rarity)) as pool:
        for version in range(args.versions - 1, -1, -1): # the first one comes last, and is what is held out
            made = list(pool.map(pairs_at, ((version, i) for i in range(len(docs))), chunksize=256))
            train += shuffled_blocks([m for d, m in zip(docs, made) if not is_held_out(d)], rng)
    known = {positive for _, _, positive in train}
    held_out = [p for d, m in zip(docs, made) if is_held_out(d) for p in m if p[2] not in known]
    rng.shuffle(held_out)
    valid, test = held_out[::2], held_out[1::2]
    write(f"{args.out}/train.jsonl", train)
    write(f"{args.out}/valid.jsonl", valid[:4000])
    kinds = collections.Counter(k for k, _, _ in train)
    for kind in kinds:
        if kind != "next":
            write(f"{args.out}/test-{kind}.jsonl", unique([p for p in test if p[0] == kind])[:TEST_MOST])
    print(f"{len(docs)} documents: {len(train)} pairs to train on ({', '.join(f'{n} {k}' for k, n in kinds.most_common())}), "
          f"{len(valid[:4000])} for validation")


def unique(pairs):
    """One pair a query and one a passage: which passage is right must be known."""
    queries, positives, made = set(), set(), []
    for p in pairs:
        if p[1].lower() not in queries and p[2] not in positives:
            queries.add(p[1].lower())
            positives.add(p[2])
            made.append(p)
    return made


def keep(docs, rarity):
    global kept
    kept = docs, rarity


def pairs_at(place):
    version, i = place
    return pairs_of((version * len(kept[0]) + i, kept[0][i], kept[1]))


if __name__ == "__main__":
    main()
