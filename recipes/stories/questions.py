"""Questions, answers and summaries about a passage, found in its own words.

A passage is a few paragraphs of a story. Its sentences are searched for things that are said in so many words:
"a fox named Finn", "Mia found a key", "lived in a small village", '"Wait!" said Tom', "a red kite". Each gives a
question whose answer stands in the passage; one with two possible answers is not asked. A summary is who it is
about, what this hero does in the sentence that has most of the passage's frequent words, and how it ends.
"""
import collections
import re

from tales import ANIMALS, NOT_NAMES, WHO, names, with_article

COLOURS = "red blue green yellow orange purple pink black white brown grey gray golden silver".split()
NUMBERS = "two three four five six seven eight nine ten eleven twelve".split()
STOP = r"(?=[.,;!?]| (?:and|with|that|who|which|in|on|at|to|for|from|under|near|by|as|but|while|when|where|because|" \
       r"so|inside|behind|beside|into|over|through|hidden|filled|was|were|is|had|lying)\b)"
THING = rf"((?:a|an|the|some|his|her|their)(?: [a-z'-]+){{1,3}}?){STOP}"
PAST = {"found": "find", "saw": "see", "bought": "buy", "made": "make", "built": "build", "lost": "lose",
        "baked": "bake", "ate": "eat", "carried": "carry", "wore": "wear", "opened": "open", "discovered": "discover",
        "spotted": "spot", "noticed": "notice", "heard": "hear", "drew": "draw", "painted": "paint", "met": "meet",
        "planted": "plant", "caught": "catch", "wanted": "want", "needed": "need", "took": "take", "brought": "bring",
        "picked up": "pick up", "hid": "hide", "followed": "follow", "visited": "visit", "owned": "own"}
RELATIONS = "friend|best friend|brother|sister|mother|father|grandmother|grandfather|uncle|aunt|cousin|teacher|neighbor"
VAGUE = set("""way moment sense feeling time sound voice chance bit lot look idea eyes hand hands head heart
    glow light mist haze hue hues shadows one eyed hour hours""".split())


def spoken(phrase):
    """An answer as it is given: with a capital letter and a full stop."""
    return phrase[0].upper() + phrase[1:] + "."


def main_character(passage):
    """The name that the passage says most, or None if two are said as often."""
    found = re.findall(r"\b[A-Z][a-z]{2,}\b", passage)
    counts = collections.Counter(w for w in found if w in set(names(passage, 1)))
    top = counts.most_common(2)
    if not top or top[0][1] < 2 or len(top) > 1 and top[0][1] < 1.5 * top[1][1]:
        return None
    return top[0][0]


def about_names(passage, hero):
    for kind, name in re.findall(rf"\b({WHO}|puppy|kitten)(?: who was)? (?:named|called) ([A-Z][a-z]+(?: [A-Z][a-z]+)?)\b", passage):
        yield f"What is the {kind}'s name?", f"What is the name of the {kind}?", name
        yield f"What is the {kind} called?", f"What was the name of the {kind}?", name
        if kind in ANIMALS:
            yield f"What kind of animal is {name}?", f"What animal is {name}?", with_article(kind)
    if hero:
        yield "Who is the story about?", "Who is this text about?", hero
        if len(passage) % 3 == 0:
            yield "Who is the main character?", "What is the main character's name?", hero
    for relation, name in re.findall(rf"\b(?:his|her) ({RELATIONS}),? ([A-Z][a-z]{{2,}})\b", passage):
        if hero and name != hero and name not in NOT_NAMES:
            yield f"Who is {hero}'s {relation}?", f"What is the name of {hero}'s {relation}?", name


def about_things(passage, hero):
    for colour, thing in re.findall(rf"\b({'|'.join(COLOURS)}) ([a-z]{{3,}}){STOP}", passage):
        if len(set(re.findall(rf"\b([a-z]+) {thing}\b", passage)) & set(COLOURS)) == 1:
            be = "are" if re.search("[^s]s$", thing) else "is"
            if thing not in VAGUE:
                yield f"What colour {be} the {thing}?", f"What color {be} the {thing}?", colour
    for number, thing in re.findall(rf"\b({'|'.join(NUMBERS)}) ([a-z]{{3,}}s){STOP}", passage):
        if thing not in ("hours", "minutes", "days", "weeks", "years", "months", "times", "others", "miles", "steps"):
            yield f"How many {thing} are there?", f"How many {thing} does the text speak of?", number
    for name, age in re.findall(rf"\b([A-Z][a-z]{{2,}}) was (?:only )?({'|'.join(NUMBERS)}) years old", passage):
        if name not in NOT_NAMES:
            yield f"How old is {name}?", f"How old was {name}?", age
    done = collections.defaultdict(set)
    who = rf"({hero}|[Hh]e|[Ss]he|[A-Z][a-z]{{2,}})" if hero else r"([A-Z][a-z]{2,})"
    for name, verb, thing in re.findall(rf"\b{who} ({'|'.join(PAST)}) {THING}", passage):
        name = hero if name.lower() in ("he", "she") else name
        if name and name not in NOT_NAMES and not VAGUE & set(thing.split()):
            done[name, PAST[verb]].add(thing)
    for (name, verb), things in done.items():
        if len(things) == 1:
            thing = things.pop()
            yield f"What did {name} {verb}?", f"What was it that {name} {'picked up' if verb == 'pick up' else [p for p in PAST if PAST[p] == verb][0]}?", thing
            if len(done) > 1:
                yield f"Who {[p for p in PAST if PAST[p] == verb][0]} {thing}?", None, name


def about_places(passage, hero):
    for subject, place in re.findall(rf"\b([A-Z][a-z]{{2,}}) lived ((?:in|on|at|near|by|under) (?:a|an|the|his|her) [a-z' -]+?){STOP}", passage):
        if subject not in NOT_NAMES:
            yield f"Where did {subject} live?", f"Where does {subject} live?", place
    found = re.search(rf"\b([Ii]n (?:a|an|the) [a-zA-Z' -]{{4,40}}?),? there lived an? (?:[a-z-]+ ){{0,3}}?({WHO})(?: named ([A-Z][a-z]+))?", passage)
    if found:
        place, kind, name = found.groups()
        yield f"Where did {name or 'the ' + kind} live?", f"Where does the {kind} live?", place[0].lower() + place[1:]
        yield f"Who lived {place[0].lower() + place[1:]}?", None, name or with_article(kind)
    for name, what in re.findall(r"\b([A-Z][a-z]{2,}) (?:loved|liked) to ([a-z' -]{4,40}?)[.,]", passage):
        if name not in NOT_NAMES and " and " not in what:
            yield f"What did {name} love to do?", f"What did {name} like to do?", what
    for name, where in re.findall(rf"\b([A-Z][a-z]{{2,}}) (?:went|walked|ran|hurried) (to (?:the|a|her|his) (?:[a-z]+ )?[a-z]+){STOP}", passage):
        if name not in NOT_NAMES and len(re.findall(rf"\b{name} (?:went|walked|ran|hurried) to\b", passage)) == 1:
            yield f"Where did {name} go?", None, where
    for name, feeling, why in re.findall(r"\b([A-Z][a-z]{2,}) was (happy|sad|scared|angry|excited|afraid|proud|tired|worried) because ([a-z' -]{6,60})[.,]", passage):
        if name not in NOT_NAMES:
            yield f"Why was {name} {feeling}?", None, "because " + why


def about_words(passage):
    for words, verb, name in re.findall(r'"([A-Z][^"]{6,50}?)[,.!?]" (said|asked|replied|exclaimed|whispered|cried|shouted) ([A-Z][a-z]{2,}|the [a-z]+)\b', passage):
        if name not in NOT_NAMES and '"' not in words:
            yield f'Who {verb} "{words}"?', f'Who said "{words}"?', name


def questions(passage, rng):
    """[(question, answer)] in random order, each with one answer."""
    hero = main_character(passage)
    asked = {}
    doubtful = set()
    for part in (about_names(passage, hero), about_things(passage, hero), about_places(passage, hero), about_words(passage)):
        for one, other, answer in part:
            if asked.setdefault(one, (other, answer))[1] != answer:
                doubtful.add(one)
    found = [(other if other and rng.random() < 0.35 else one, spoken(answer))
             for one, (other, answer) in asked.items() if one not in doubtful]
    rng.shuffle(found)
    return found


# ---- Summaries ---------------------------------------------------------------------------------

SMALL = set("""the a an and but or of to in on at for with from by as it its he she they his her their them him was
    were is are be been had has have that this there then when who which one day so not no did do very all out up
    into over what said you i my me we us your could would""".split())


def sentences(passage):
    return [s.strip() for s in re.split(r"(?<=[.!?])\s+(?=[A-Z\"])", passage.replace("\n", " ")) if s.strip()]


def gist(passage, rng):
    """(what the hero does, how it ends or None): a summary of one sentence, and what makes it two; or None"""
    hero = main_character(passage)
    lines = sentences(passage)
    if not hero or len(lines) < 4:
        return None
    words = collections.Counter(w for w in re.findall(r"[a-z]+", passage.lower()) if w not in SMALL)
    best = None
    for i, line in enumerate(lines):
        found = re.match(rf"(?:[A-Z][^\",.]{{2,60}}, )?(?:{hero}|He|She|he|she) ((?!(?:was|is|had|loved|liked|felt|could|lived|knew|thought|would|did)\b)[a-z]+ [^\"]+)\.$", line)
        said = found.group(1) if found else ""
        if not 5 <= len(said.split()) <= 20 or i > 0 and not re.search(rf"\b{hero} {re.escape(said[:8])}", line) and hero not in lines[i - 1]:
            continue
        kept = [words[w] for w in re.findall(r"[a-z]+", said.lower()) if w not in SMALL]
        score = sum(kept) / (len(kept) + 3) if kept else 0
        if best is None or score > best[0]:
            best = (score, said)
    if not best:
        return None
    kind = re.search(rf"\b(an? (?:[a-z]+ ){{0,2}}(?:{WHO}))(?: who was)? (?:named|called) {hero}\b", passage)
    first = f"{hero}, {kind.group(1)}, {best[1]}." if kind and rng.random() < 0.8 else f"{hero} {best[1]}."
    last = lines[-1]
    if '"' in last or not re.match(rf"{hero}|He|She|They|The|It|From that day|And so", last) or len(last.split()) > 18 or best[1] in last:
        return first, None
    return first, ("In the end, " + (last if last.startswith(hero) else last[0].lower() + last[1:])
                   if re.match(rf"{hero}|He|She|They", last) else last)


def passage_of(text, rng):
    """Paragraphs of a story from its beginning, 250 to 1,100 bytes, one in eight up to 2,400; or None."""
    want = rng.choice((300, 400, 500, 700, 900)) if rng.random() < 0.88 else 2000
    most, kept = max(1100, want + 400), ""
    for paragraph in text.split("\n\n"):
        if kept and len(kept) + len(paragraph) > most:
            break
        kept += ("\n\n" if kept else "") + paragraph.strip()
        if len(kept) >= want:
            break
    return kept if 250 <= len(kept) <= most else None


def exchange_colours(text, rng):
    """Other colours, so that an answer has to be read and cannot be guessed."""
    plain = [c for c in COLOURS if c not in ("golden", "silver", "gray")]
    put = dict(zip(plain, rng.sample(plain, len(plain))))
    return re.sub(rf"\b(?<!-)({'|'.join(plain)}) (?=[a-z]{{3,}})", lambda m: put[m.group(1)] + " ", text)
